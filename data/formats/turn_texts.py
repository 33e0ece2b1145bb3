"""Conversations as a plain list of texts, user and assistant in turn (UltraChat)."""

from __future__ import annotations

from data.errors import Finding
from data.formats.base import Columns, Given, Match, Record, mapping
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "turn_texts"
ABOUT = "a list of texts, user and assistant in turn (UltraChat)"
GIVES = ("messages",)
COLUMNS = ("data", "turns", "conversation", "conversations", "dialog", "messages")


def matches(columns: Columns, given: Given) -> Match | None:
    """The only column of lists of texts, most of even length; it may also hold candidate answers, so ask."""
    column = columns.find("messages", COLUMNS, given)
    if column is None or "texts" not in column.kinds:
        return None
    others = [
        one
        for one in columns.all.values()
        if one is not column and (one.is_text and "prompt" in one.name.lower())
    ]
    even = [value for value in column.values if isinstance(value, list) and value and len(value) % 2 == 0]
    if others or 2 * len(even) < len(column.values):
        return None
    ask = Finding(
        "data_turns_alternate",
        f"The texts in {column.name} are read as user and assistant in turn; "
        "set data.format if they are something else.",
        "warning",
        "data.format",
        NAME,
    )
    return Match(NAME, 0.7, mapping(messages=column), f"column {column.name} holds lists of texts", (ask,))


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """Even positions ask, odd ones answer."""
    value = record.get(match.columns["messages"])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Unusable("wrong_type", repr(value)[:160])
    roles = ("user", "assistant")
    return [{"messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(value)]}]
