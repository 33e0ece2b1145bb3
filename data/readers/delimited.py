"""Rows out of CSV, TSV and their cousins: delimiter and quoting are found from the content."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal

from data.errors import refuse
from data.limits import MAX_COLUMNS, MAX_LINE
from data.readers.json_rows import Item
from data.rows import Unusable

DELIMITERS = ",;\t|"
_MENDS = 20
"""After so many unbalanced quotes quoting is switched off for the rest of the file."""


@dataclass(frozen=True)
class Dialect:
    """How a table is written: the delimiter, and whether double quotes wrap cells or are plain letters."""

    delimiter: str
    quoted: bool
    columns: int


def sniff_dialect(sample: str, delimiter: str | None = None) -> Dialect | None:
    """The dialect under which most rows of `sample` have as many cells as the header; None when there is no table."""
    lines = sample.splitlines(keepends=True)
    if len(sample) > 1 and len(lines) > 2 and not sample.endswith("\n"):
        lines = lines[:-1]
    best: tuple[float, int, Dialect] | None = None
    for candidate in delimiter or DELIMITERS:
        for quoted in (True, False):
            share, columns = _fit(lines[:400], candidate, quoted)
            if columns < 2 and delimiter is None:
                continue
            if quoted == _literal_quotes(lines, candidate):
                share -= 0.2
            if best is None or (share, columns) > best[:2]:
                best = (share, columns, Dialect(candidate, quoted, columns))
    return best[2] if best and (best[0] >= 0.5 or delimiter) else None


def _fit(lines: list[str], delimiter: str, quoted: bool) -> tuple[float, int]:
    """(share of rows with the header's number of cells, that number)."""
    rows = []
    try:
        for row in csv.reader(
            lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        ):
            if row:
                rows.append(len(row))
    except csv.Error:
        return 0.0, 0
    if not rows:
        return 0.0, 0
    return sum(count == rows[0] for count in rows) / len(rows), rows[0]


def _literal_quotes(lines: list[str], delimiter: str) -> bool:
    """True when cells hold double quotes that cannot be wrapping: opened and not closed within the cell."""
    for line in lines[:400]:
        for cell in line.rstrip("\r\n").split(delimiter):
            opens, closes = cell.startswith('"'), cell.endswith('"') and len(cell) > 1
            if opens and not closes and delimiter == "\t":
                return True
            if not opens and '"' in cell and delimiter == "\t":
                return True
    return False


def read_delimited(stream: IO[str], dialect: Dialect, notes: dict[str, list[int]]) -> Iterator[Item]:
    """One record per row, cells as text under trimmed header names. Unbalanced quotes are mended and noted."""
    csv.field_size_limit(MAX_LINE)
    rows = _Rows(stream, dialect, notes)
    header: list[str] = []
    for number, cells in rows:
        if not any(cell.strip() for cell in cells):
            if header and (len(cells) > 1 or (cells and len(header) == 1)):
                yield number, Unusable("empty_row")
            continue
        if not header:
            header = _header(cells)
            rows.columns = len(header)
            continue
        if len(cells) > len(header):
            if any(cell.strip() for cell in cells[len(header) :]):
                yield number, Unusable("ragged", dialect.delimiter.join(cells)[:160])
                continue
            cells = cells[: len(header)]
        elif len(cells) < len(header):
            cells = cells + [""] * (len(header) - len(cells))
        yield number, dict(zip(header, cells, strict=True))
    for number in rows.long_lines:
        yield number, Unusable("line_too_long")


def _header(cells: list[str]) -> list[str]:
    """Header names: trimmed; an empty or repeated one gets its position. Raises FactoryError for too many."""
    if len(cells) > MAX_COLUMNS:
        raise refuse(
            "data_too_wide",
            f"The table has {len(cells):,} columns, more than {MAX_COLUMNS}: keep the ones that hold the texts.",
            field="data.path",
            value=len(cells),
        )
    names: list[str] = []
    for position, cell in enumerate(cells, 1):
        name = cell.strip().lstrip("\ufeff") or f"column_{position}"
        names.append(name if name not in names else f"{name}_{position}")
    return names


class _Rows:
    """(line number, cells) of a table. Keeps the lines of the row in hand so that a row can be read again unquoted."""

    def __init__(self, stream: IO[str], dialect: Dialect, notes: dict[str, list[int]]) -> None:
        self._stream, self._dialect, self._notes = stream, dialect, notes
        self._again: list[str] = []
        self._held: list[str] = []
        self._number = 0
        self._mended = 0
        self.long_lines: list[int] = []
        self.columns = 0

    def _lines(self) -> Iterator[str]:
        while True:
            if self._again:
                line = self._again.pop()
            else:
                line = self._stream.readline(MAX_LINE)
                if len(line) >= MAX_LINE and not line.endswith("\n"):
                    self.long_lines.append(self._number + 1)
                    while line and not line.endswith("\n"):
                        line = self._stream.readline(MAX_LINE)
                    self._number += 1
                    continue
            if not line:
                return
            self._number += 1
            self._held.append(line.replace("\x00", ""))
            yield self._held[-1]

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self._dialect.quoted else csv.QUOTE_NONE
        while True:
            reader = csv.reader(
                self._lines(), delimiter=self._dialect.delimiter, quoting=quoting, strict=True
            )
            try:
                for cells in reader:
                    held, self._held = self._held, []
                    if len(held) > 1 and self.columns and len(cells) != self.columns:
                        raise csv.Error(held)
                    yield self._number - len(held) + 1, cells
                return
            except csv.Error as error:
                held = error.args[0] if isinstance(error.args[0], list) else self._held
                self._held = []
                if not held:
                    raise
                yield from self._mend(held)
                if self._mended >= _MENDS:
                    quoting = csv.QUOTE_NONE

    def _mend(self, held: list[str]) -> Iterator[tuple[int, list[str]]]:
        """The first line of a row whose quotes do not close, its quotes read as letters; the other lines come again."""
        self._mended += 1
        self._again.extend(reversed(held[1:]))
        self._number -= len(held) - 1
        self._notes.setdefault("unbalanced_quote", []).append(self._number)
        line = held[0].rstrip("\r\n")
        yield (
            self._number,
            next(csv.reader([line], delimiter=self._dialect.delimiter, quoting=csv.QUOTE_NONE)),
        )
