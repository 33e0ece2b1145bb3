"""Any file to records, streamed: content beats the file name."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from data.encoding import guess_encoding, known_encoding, text_of
from data.errors import refuse
from data.opening import Opened, is_binary, open_file
from data.readers.delimited import Dialect, read_delimited, sniff_dialect
from data.readers.json_rows import Item, read_document, read_lines
from data.readers.text_rows import read_text
from data.settings import Source


@dataclass
class FileRows:
    """A file being read: `items` streams its records; `kind`, `encoding` and `notes` say what was understood.

    `notes` maps a note's code to the lines it was seen on; it fills while `items` is read.
    """

    path: Path
    kind: str
    encoding: str | None
    items: Iterator[Item]
    detail: str = ""
    notes: dict[str, list[int]] = field(default_factory=dict)
    held: list[IO[Any]] = field(default_factory=list)
    """Open streams, to be closed when the rows have been read."""

    def close(self) -> None:
        """Let go of the file."""
        for stream in self.held:
            stream.close()


def read_file(path: Path, source: Source = Source(), documents: str = "file") -> FileRows:  # noqa: B008 - frozen
    """The records of one file. Raises FactoryError for what cannot be read as data."""
    opened = open_file(path)
    notes: dict[str, list[int]] = {}
    if opened.packed:
        notes[f"unpacked:{opened.packed}"] = [1]
    try:
        if opened.kind in ("parquet", "arrow", "arrow_stream", "xlsx"):
            made = _table(opened, source, notes)
        else:
            made = _text(opened, source, documents, notes)
    except BaseException:
        opened.raw.close()
        raise
    made.held.append(opened.raw)
    return made


def _table(opened: Opened, source: Source, notes: dict[str, list[int]]) -> FileRows:
    from data.readers import tables

    stream: IO[bytes] = opened.stream if opened.stream.seekable() else io.BytesIO(opened.stream.read())
    items = {
        "parquet": lambda: tables.read_parquet(stream, opened.path),
        "arrow": lambda: tables.read_arrow(stream, opened.path, False),
        "arrow_stream": lambda: tables.read_arrow(stream, opened.path, True),
        "xlsx": lambda: tables.read_excel(stream, opened.path, source.sheet, notes),
    }[opened.kind]()
    return FileRows(opened.path, opened.kind.removesuffix("_stream"), None, items, notes=notes)


def _text(opened: Opened, source: Source, documents: str, notes: dict[str, list[int]]) -> FileRows:
    if is_binary(opened.head):
        raise refuse(
            "data_kind_refused",
            f"{opened.path.name} is a binary file that is not read as data: "
            "convert it to JSONL, CSV, Parquet or plain text.",
            field="data.path",
            value=str(opened.path),
        )
    encoding = known_encoding(source.encoding) if source.encoding else guess_encoding(opened.head)
    if encoding not in ("utf-8", "utf-8-sig"):
        notes[f"encoding:{encoding}"] = [1]
    head = opened.head.decode(encoding, "replace").removeprefix("\ufeff")
    kind, dialect = _kind(head, opened.path, source)
    stream = opened.stream
    detail = ""
    held: list[IO[Any]] = []
    if kind in ("json", "jsonl"):
        if encoding not in ("utf-8", "utf-8-sig"):
            held.append(text := text_of(stream, encoding))
            stream = io.BufferedReader(_AsUtf8(text), 2**20)
        size = opened.path.stat().st_size if opened.packed is None else 0
        if kind == "jsonl":
            items = read_lines(stream, notes)
        else:
            items = read_document(stream, size, notes)
    elif dialect is not None:
        detail = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}.get(
            dialect.delimiter, dialect.delimiter
        )
        held.append(text := _decoded(stream, encoding))
        items = read_delimited(text, dialect, notes)
    else:
        held.append(text := _decoded(stream, encoding))
        items = read_text(text, documents)
    return FileRows(opened.path, kind, encoding, items, detail, notes, held)


def _decoded(stream: io.BufferedReader, encoding: str) -> io.TextIOWrapper:
    return text_of(stream, "utf-8-sig" if encoding == "utf-8" else encoding)


class _AsUtf8(io.RawIOBase):
    """A decoded text as UTF-8 bytes, for the JSON readers."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._left = text, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._left:
            self._left = self._text.read(2**18).encode("utf-8", "replace")
        piece, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def _kind(head: str, path: Path, source: Source) -> tuple[str, Dialect | None]:
    """(json, jsonl, csv or text; the dialect of a csv), from the first characters; the name where several fit."""
    start = head.lstrip()
    ending = _ending(path)
    if source.delimiter is None and start[:1] in ("{", "["):
        kind = _json_kind(start)
        if kind is not None:
            return kind, None
    if source.delimiter is None and ending in (".json", ".jsonl", ".ndjson"):
        return "jsonl", None
    if ending in (".md", ".markdown") and source.delimiter is None:
        return "text", None
    dialect = sniff_dialect(head, source.delimiter)
    if ending in (".csv", ".tsv", ".psv") or source.delimiter:
        return "csv", dialect or Dialect(source.delimiter or ",", True, 1)
    if dialect is not None and _is_header(head, dialect):
        return "csv", dialect
    return "text", None


def _json_kind(start: str) -> str | None:
    """jsonl when the first line is a whole value with more behind it, json when the text is JSON so far, else None."""
    import json

    first, _, rest = start.partition("\n")
    decoder = json.JSONDecoder()
    try:
        value, end = decoder.raw_decode(first)
    except (json.JSONDecodeError, RecursionError):
        opening = start[1:].lstrip()[:1]
        array = start[0] == "[" and (opening in ("{", "[", '"', "]", "") or opening.isdigit())
        # An object that goes on over several lines is one document; a broken first line is still JSON Lines.
        if start[0] == "{":
            several = '{"' in rest[:4096] and rest.lstrip()[:1] == "{"
            return ("jsonl" if several else "json") if opening in ('"', "}", "") else None
        return "json" if array else None
    if isinstance(value, list):
        return "jsonl" if rest.lstrip()[:1] == "[" else "json"
    if first[end:].strip() or rest.strip():
        return "jsonl"
    return "json"


def _is_header(head: str, dialect: Dialect) -> bool:
    """Whether the first line of a file without a table's ending reads like column names rather than prose."""
    first = head.split("\n", 1)[0]
    cells = [cell.strip().strip('"') for cell in first.split(dialect.delimiter)]
    short = all(0 < len(cell) <= 40 and len(cell.split()) <= 3 for cell in cells)
    return short and len(set(cells)) == len(cells) and head.count("\n") >= 1


def _ending(path: Path) -> str:
    ending = path.suffix.lower()
    if ending in (".gz", ".zst", ".zstd", ".gzip"):
        ending = Path(path.stem).suffix.lower()
    return ending
