"""Texts that already hold chat marks (### Human:, [INST], <|im_start|>): taken apart into turns."""

from __future__ import annotations

from data.errors import Finding
from data.formats import plain_text
from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.formats.marked import is_marked, split_marked
from data.rows import Row
from data.settings import Choices

NAME = "marked_text"
ABOUT = "texts with chat marks inside (### Human:, [INST], <|im_start|>), taken apart into turns"
GIVES = ("messages", "text")


def matches(columns: Columns, given: Given) -> Match | None:
    """A text column most of whose texts hold chat marks."""
    text = columns.text("text", plain_text.COLUMNS, given)
    if text is None or 2 * sum(map(is_marked, text.texts)) <= len(text.texts):
        return None
    ask = Finding(
        "data_marks_in_text",
        f"Column {text.name} holds chats with their marks; they are taken apart into turns and rendered with the "
        "model's own template. data.format: text trains on them as they stand, marks included and without an end mark.",
        "warning",
        "data.format",
        NAME,
        fix={"data.format": "text"},
    )
    return Match(NAME, 0.9, mapping(text=text), f"column {text.name} holds chat marks", (ask,))


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """The turns; for pretraining the text as it stands."""
    text = text_cell(record, match.columns["text"])
    return [{"text": text}] if shape == "text" else [{"messages": split_marked(text)}]
