"""The canonical row shapes: the only vocabulary between a file and a stage.

A row is a plain dict in one of the shapes below. Tool arguments stay JSON text until a template renders them.

    text        {text}
    messages    {messages, tools?}                turn = {role, content, tool_calls?, tool_call_id?, name?, reasoning_content?, weight?}
    completion  {prompt, completion}              both texts, or both lists of turns
    preference  {prompt, chosen, rejected, margin?}
    feedback    {prompt, completion, label}       label True = desirable
    prompt      {prompt, answer?, extra?}         extra holds free columns for reward functions
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
Turn = dict[str, Any]

SHAPES = ("text", "messages", "completion", "preference", "feedback", "prompt")
ROLES = ("system", "user", "assistant", "tool")

ROLE_WORDS: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "customer": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "tool_response": "tool",
    "function_response": "tool",
    # A call is an assistant turn whose text is the call itself; data.formats.turns reads it.
    "function_call": "call",
    "tool_call": "call",
}
"""Words for roles seen in real files, lower case, and what they mean here."""


class Unusable(Exception):
    """A record that cannot become a row. `reason` is a stable word for counting, `text` shows what was seen."""

    def __init__(self, reason: str, text: str = "") -> None:
        self.reason = reason
        # Shown on terminals: nothing in a file may steer them.
        self.text = "".join([c if c.isprintable() else "\ufffd" for c in text[:200]])
        super().__init__(f"{reason}: {self.text}")


REASONS: Mapping[str, str] = {
    "broken_json": "not valid JSON",
    "unread": "behind a broken value, where the next row begins cannot be told",
    "too_deep": "nested deeper than 64 levels",
    "line_too_long": "a line longer than 16 MiB",
    "not_an_object": "not an object with columns",
    "ragged": "more cells than the header has columns",
    "empty_row": "every cell is empty",
    "missing_column": "a needed column is missing or empty",
    "wrong_type": "a column holds another type than the others",
    "unknown_role": "a turn has a role that is not known",
    "no_answer": "no assistant turn to learn from",
    "empty_answer": "the answer is empty",
    "empty_prompt": "the prompt is empty",
    "empty_text": "the text is empty",
    "tie": "both answers are rated alike",
    "same_answers": "chosen and rejected are the same",
    "no_pair": "no second answer to the same prompt to compare with",
    "label_unclear": "the label is neither of the two values",
    "score_unclear": "a score is not a number",
    "below_threshold": "the score is below data.threshold",
    "no_shared_prompt": "both answers begin differently and there is no prompt",
    "unanswerable": "the question has no answer in the file",
    "no_final_answer": "no final answer after ####",
    "turns_not_alternating": "two turns in a row have the same role",
    "orphan": "its parent is not in the file",
    "cycle": "its parents lead back to itself",
    "image": "needs a vision model",
    "too_long": "longer than max_length",
    "no_trained_tokens": "no token left to learn from after cutting",
    "same_after_cut": "chosen and rejected are the same after cutting",
    "mask_unclear": "the template hides where the answer begins",
    "template_refused": "the chat template refused the turns",
    "bad_tools": "the tools column is not a JSON list",
    "duplicate": "the same as an earlier row",
}
"""Every reason a row can be dropped for, in words for people."""


def reason_words(reason: str) -> str:
    """The words for a reason; the reason itself where there are none (a file may bring new ones)."""
    return REASONS.get(reason, reason.replace("_", " "))


def shape_of(row: Row) -> str:
    """The name of the row's shape, from its keys. Raises KeyError for a dict that is no canonical row."""
    if "chosen" in row:
        return "preference"
    if "label" in row:
        return "feedback"
    if "completion" in row:
        return "completion"
    if "messages" in row:
        return "messages"
    if "prompt" in row:
        return "prompt"
    if "text" in row:
        return "text"
    raise KeyError(f"no canonical row has the keys {sorted(row)}")


def is_empty(value: Any) -> bool:
    """True for an absent or blank text and for a list of turns that say and call nothing."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    return not any(says_something(turn) for turn in value)


def says_something(turn: Turn) -> bool:
    """True when a turn has text, reasoning or a tool call."""
    return bool(
        (turn.get("content") or "").strip()
        or turn.get("tool_calls")
        or (turn.get("reasoning_content") or "").strip()
    )


def check_row(row: Row) -> None:
    """Refuse a row that has nothing to teach. Raises Unusable with the reason."""
    if "messages" in row:
        _check_messages(row["messages"])
        return
    shape = shape_of(row)
    if shape == "text":
        if not row["text"].strip():
            raise Unusable("empty_text")
    elif shape == "preference":
        _check_preference(row)
    else:
        if is_empty(row["prompt"]):
            raise Unusable("empty_prompt")
        if shape != "prompt" and is_empty(row["completion"]):
            raise Unusable("empty_answer")


def _check_messages(messages: list[Turn]) -> None:
    if messages and messages[-1]["role"] == "assistant" and messages[-1]["content"].strip():
        return
    answers = [turn for turn in messages if turn["role"] == "assistant"]
    if not answers:
        raise Unusable("no_answer", ", ".join(turn["role"] for turn in messages[:8]))
    if not any(map(says_something, answers)):
        raise Unusable("empty_answer")


def _check_preference(row: Row) -> None:
    if is_empty(row["prompt"]):
        raise Unusable("empty_prompt")
    if is_empty(row["chosen"]) or is_empty(row["rejected"]):
        raise Unusable("empty_answer", "chosen" if is_empty(row["chosen"]) else "rejected")
    if row["chosen"] == row["rejected"]:
        raise Unusable("same_answers")
