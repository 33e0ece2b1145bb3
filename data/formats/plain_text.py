"""Documents: one column of text."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.rows import Row
from data.settings import Choices

NAME = "text"
ABOUT = "documents: one column of text"
GIVES = ("text",)
COLUMNS = ("text", "content", "document", "raw", "raw_content", "body")


def matches(columns: Columns, given: Given) -> Match | None:
    """A text column with a usual name, or the only column there is."""
    text = columns.text("text", COLUMNS, given)
    sure = 0.95
    if text is None and len(columns.all) == 1 and "text" not in given:
        only = next(iter(columns.all.values()))
        text, sure = (only if only.is_text else None), 0.6
    if text is None:
        return None
    return Match(NAME, sure, mapping(text=text), f"column {text.name} holds texts")


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One text row, as it is."""
    return [{"text": text_cell(record, match.columns["text"])}]
