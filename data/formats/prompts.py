"""Prompts without answers, for training by rewards; other columns are handed to the reward functions by name."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.formats.turns import looks_like_turns, read_turns
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "prompts"
ABOUT = "prompts without answers; other columns go to the reward functions by name"
GIVES = ("prompt",)
ANSWERS = ("ground_truth", "answer", "solution", "target", "expected_answer")
_TAKEN = ("completion", "chosen", "rejected", "response", "answers", "completions")


def matches(columns: Columns, given: Given) -> Match | None:
    """A prompt column, or turns that end with a user's, and nothing that answers them."""
    if any(name in given or columns.find("", (name,), {}) is not None for name in _TAKEN):
        return None
    prompt = columns.find("prompt", ("prompt",), given)
    if prompt is None or not (prompt.is_text or prompt.is_turns):
        prompt = columns.find("messages", ("messages", "conversations"), given)
        if prompt is None or not prompt.is_turns or not _ends_asking(prompt.values):
            return None
    answer = columns.find("answer", ANSWERS, given)
    found = mapping(prompt=prompt, answer=answer)
    return Match(NAME, 0.9, found, f"column {prompt.name} has no answer beside it")


def _ends_asking(values: list[object]) -> bool:
    last = [_last_role(value) for value in values]
    return bool(last) and all(role in ("user", "tool") for role in last)


def _last_role(value: object) -> str | None:
    try:
        return str(read_turns(value)[-1]["role"])
    except (Unusable, IndexError):
        return None


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """The prompt; an answer to compare with; every other column as extra when there is no answer column."""
    name = match.columns["prompt"]
    value = record.get(name)
    row: Row = {"prompt": read_turns(value) if looks_like_turns(value) else text_cell(record, name)}
    answer = match.columns.get("answer")
    if answer is not None:
        row["answer"] = text_cell(record, answer)
    else:
        extra = {key: cell for key, cell in record.items() if key != name and cell is not None}
        if extra:
            row["extra"] = extra
    return [row]
