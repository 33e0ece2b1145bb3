"""An answer with a good/bad label: KTO rows, messages with a label, thumbs."""

from __future__ import annotations

from typing import Any

from data.errors import Finding
from data.formats import alpaca
from data.formats.base import Column, Columns, Given, Match, Record, mapping, text_cell
from data.formats.turns import looks_like_turns, read_turns
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "feedback"
ABOUT = "an answer with a good/bad label (KTO): booleans, yes/no, thumbs"
GIVES = ("feedback",)
LABELS = ("label", "kto_tag", "is_good", "thumbs", "thumb", "feedback", "liked", "desirable")
PAIRS = (("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("query", "response"))
TURNS = ("messages", "conversations", "conversation")
GOOD = {"true", "1", "1.0", "yes", "y", "good", "thumbs_up", "thumbsup", "thumb_up", "up", "👍", "like", "liked",
        "desirable", "positive", "accepted", "chosen", "+1", "correct"}  # fmt: skip
BAD = {"false", "0", "0.0", "no", "n", "bad", "thumbs_down", "thumbsdown", "thumb_down", "down", "👎", "dislike",
       "disliked", "undesirable", "negative", "rejected", "-1", "incorrect", "wrong"}  # fmt: skip


def matches(columns: Columns, given: Given) -> Match | None:
    """A label column of two values beside a prompt and an answer, or beside turns."""
    label = columns.find("label", LABELS, given)
    if label is None:
        return None
    values = list(dict.fromkeys(word_of(value) for value in label.values))
    clear = all(value in GOOD | BAD for value in values)
    if not values or (not clear and ("label" not in given and len(values) != 2)):
        return None
    found = _answer_columns(columns, given)
    if found is None:
        return None
    asks = () if _is_flags(label) else (_shown_mapping(label, values, clear),)
    why = f"column {label.name} has the values {' and '.join(values[:4])}"
    return Match(NAME, 0.96 if clear else 0.6, {**found, "label": label.name}, why, asks, clear=clear)


def _is_flags(label: Column) -> bool:
    return set(label.kinds) <= {"flag", "null"}


def _shown_mapping(label: Column, values: list[str], clear: bool) -> Finding:
    if clear:
        told = ", ".join(f"{value} = {'good' if value in GOOD else 'bad'}" for value in values)
        return Finding(
            "data_labels_read", f"Column {label.name} was read as {told}.", "note", "data.labels", values
        )
    guess = {value: index == 0 for index, value in enumerate(values)}
    return Finding(
        "data_labels_unclear",
        f"Column {label.name} has the values {' and '.join(values)}: say which one is good with data.labels "
        f"({{{', '.join(f'{value}: true or false' for value in values)}}}).",
        "warning",
        "data.labels",
        values,
        fix={"data.labels": guess},
    )


def _answer_columns(columns: Columns, given: Given) -> dict[str, str] | None:
    for prompt_name, completion_name in PAIRS:
        prompt = columns.find("prompt", (prompt_name,), given)
        completion = columns.find("completion", (completion_name,), given)
        if prompt is not None and completion is not None:
            return mapping(prompt=prompt, completion=completion)
    turns = next(
        (c for name in TURNS if (c := columns.find("messages", (name,), given)) is not None and c.is_turns),
        None,
    )
    if turns is not None:
        return mapping(messages=turns)
    instructed = alpaca.matches(columns, given)
    return dict(instructed.columns) if instructed is not None else None


def word_of(value: Any) -> str:
    """A label as the word to look up."""
    return str(value).strip().lower().replace(" ", "_").strip(":")


def label_of(value: Any, choices: Choices) -> bool:
    """Good or bad. Raises Unusable('label_unclear'); never the truth of a text."""
    for word, good in choices.labels.items():
        if word_of(value) == word_of(word):
            return good
    if value is True or value is False:
        return bool(value)
    word = word_of(value)
    if word in GOOD:
        return True
    if word in BAD:
        return False
    raise Unusable("label_unclear", str(value)[:80])


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One feedback row; of turns, the last answer is what is judged."""
    columns = match.columns
    label = label_of(record.get(columns["label"]), choices)
    if "messages" in columns:
        turns = read_turns(record.get(columns["messages"]))
        if len(turns) < 2 or turns[-1]["role"] != "assistant":
            raise Unusable("no_answer", ", ".join(turn["role"] for turn in turns[:8]))
        return [{"prompt": turns[:-1], "completion": turns[-1:], "label": label}]
    if "instruction" in columns:
        turns = alpaca.to_rows(record, "messages", match, choices)[0]["messages"]
        prompt: Any = turns[:-1] if len(turns) > 2 else turns[0]["content"]
        completion: Any = turns[-1:] if len(turns) > 2 else turns[-1]["content"]
        return [{"prompt": prompt, "completion": completion, "label": label}]
    values = [record.get(columns[word]) for word in ("prompt", "completion")]
    if any(map(looks_like_turns, values)):
        roles = ("user", "assistant")
        made = [
            read_turns(value) if looks_like_turns(value) else [{"role": role, "content": str(value)}]
            for value, role in zip(values, roles, strict=True)
        ]
        return [{"prompt": made[0], "completion": made[1], "label": label}]
    return [
        {
            "prompt": text_cell(record, columns["prompt"]),
            "completion": text_cell(record, columns["completion"]),
            "label": label,
        }
    ]
