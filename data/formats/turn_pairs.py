"""Conversations as a list of exchanges, {input, output} each (Capybara)."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, mapping
from data.rows import Row, Turn, Unusable
from data.settings import Choices

NAME = "turn_pairs"
ABOUT = "a list of exchanges with an input and an output each (Capybara)"
GIVES = ("messages",)
COLUMNS = ("conversation", "conversations", "turns", "dialog", "messages")


def _is_exchanges(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(one, dict) and "input" in one and "output" in one for one in value
    )  # fmt: skip


def matches(columns: Columns, given: Given) -> Match | None:
    """A list column whose items have input and output, and no instruction beside it (that is seed tasks)."""
    if columns.find("instruction", ("instruction",), {}) is not None:
        return None
    column = columns.find("messages", COLUMNS, given)
    if column is None or not any(map(_is_exchanges, column.values)):
        return None
    return Match(
        NAME, 0.97, mapping(messages=column), f"column {column.name} holds exchanges of input and output"
    )


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """Each exchange becomes a user and an assistant turn."""
    value = record.get(match.columns["messages"])
    if not isinstance(value, list) or not _is_exchanges(value):
        raise Unusable("wrong_type", repr(value)[:160])
    turns: list[Turn] = []
    for one in value:
        turns += [
            {"role": "user", "content": str(one["input"] or "")},
            {"role": "assistant", "content": str(one["output"] or "")},
        ]
    return [{"messages": turns}]
