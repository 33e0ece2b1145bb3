"""Rows out of plain text and Markdown: one document per file, paragraph or line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from data.readers.json_rows import Item

PIECE = 2**20
"""A document longer than this many characters is handed on in pieces, so that memory stays flat."""


def read_text(stream: IO[str], documents: str) -> Iterator[Item]:
    """{text} records; `documents` is file, paragraph (blank lines divide) or line. Texts stay as they are."""
    if documents == "line":
        for number, line in _lines(stream):
            if line.strip():
                yield number, {"text": line.rstrip("\n")}
        return
    held: list[str] = []
    start, size = 1, 0
    for number, line in _lines(stream):
        blank = not line.strip()
        if (documents == "paragraph" and blank) or size + len(line) > PIECE:
            if held and "".join(held).strip():
                yield start, {"text": _document(held, documents)}
            held, size, start = [], 0, number + 1 if blank else number
            if documents == "paragraph" and blank:
                continue
        held.append(line)
        size += len(line)
    if held and "".join(held).strip():
        yield start, {"text": _document(held, documents)}


def _lines(stream: IO[str]) -> Iterator[tuple[int, str]]:
    """(line number, line or the next PIECE characters of a very long one)."""
    number, whole = 0, True
    while line := stream.readline(PIECE):
        number += whole
        whole = line.endswith("\n")
        yield number, line


def _document(held: list[str], documents: str) -> str:
    text = "".join(held)
    return text.rstrip("\n") if documents == "paragraph" else text
