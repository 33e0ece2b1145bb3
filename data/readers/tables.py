"""Rows out of Parquet, Arrow and Excel files."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from data.errors import refuse
from data.limits import MAX_COLUMNS
from data.readers.json_rows import Item, as_record
from data.rows import Unusable

_BATCH = 1024


def read_parquet(stream: IO[bytes], path: Path) -> Iterator[Item]:
    """One record per row of a Parquet file, read batch by batch. Raises FactoryError for a damaged file."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(stream, mode="r"))
        _check_width(len(table.schema_arrow.names), path)
        number = 0
        for batch in table.iter_batches(_BATCH):
            for record in batch.to_pylist():
                number += 1
                yield number, _plain_record(record)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None


def read_arrow(stream: IO[bytes], path: Path, streamed: bool) -> Iterator[Item]:
    """One record per row of an Arrow IPC file or stream. Raises FactoryError for a damaged file."""
    import pyarrow
    import pyarrow.ipc

    try:
        source = pyarrow.PythonFile(stream, mode="r")
        if streamed:
            batches = iter(pyarrow.ipc.open_stream(source))
        else:
            opened = pyarrow.ipc.open_file(source)
            batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
        number = 0
        for batch in batches:
            _check_width(batch.num_columns, path)
            batch.validate(full=True)
            for start in range(0, batch.num_rows, _BATCH):
                for record in batch.slice(start, _BATCH).to_pylist():
                    number += 1
                    yield number, _plain_record(record)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _check_width(columns: int, path: Path) -> None:
    if columns > MAX_COLUMNS:
        raise refuse(
            "data_too_wide",
            f"{path.name} has {columns:,} columns, more than {MAX_COLUMNS}: keep the ones that hold the texts.",
            field="data.path",
            value=str(path),
        )


def _damaged(path: Path, error: Exception) -> Exception:
    return refuse(
        "data_damaged",
        f"{path.name} is damaged or cut off: copy or download it again ({str(error).splitlines()[0][:160]}).",
        field="data.path",
        value=str(path),
    )


def _plain_record(record: dict[str, Any]) -> dict[str, Any] | Unusable:
    return as_record({name: _plain(value) for name, value in record.items()})


def _plain(value: Any) -> Any:
    """JSON-like values only: times as ISO text, bytes as text where they are text, else left out as null."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


def read_excel(
    stream: IO[bytes], path: Path, sheet: str | None, notes: dict[str, list[int]]
) -> Iterator[Item]:
    """One record per row of the first sheet with a header of two or more text columns, or of the sheet named.

    Raises FactoryError for a damaged workbook and for one without such a sheet (naming the sheets there are).
    """
    import python_calamine

    try:
        book = python_calamine.CalamineWorkbook.from_filelike(stream)
        names = list(book.sheet_names)
        chosen = [name for name in names if sheet is None or name == sheet]
        for name in chosen:
            rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
            start = _header_row(rows)
            if start is not None:
                if len(names) > 1:
                    notes.setdefault(f"sheet:{name}", []).append(1)
                yield from _sheet_rows(rows, start)
                for number in range(len(rows) + 1, _last_row(stream, name) + 1):
                    yield number, Unusable("empty_row")
                return
    except (python_calamine.CalamineError, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    listed = ", ".join(names) or "none"
    raise refuse(
        "data_no_table",
        f"{path.name} has no sheet with a header row of two or more text columns (sheets: {listed}): "
        "put the column names in one row and the rows under it, or name the sheet with data.sheet.",
        field="data.sheet",
        value=sheet,
    )


def _header_row(rows: list[list[Any]]) -> int | None:
    for index, row in enumerate(rows[:20]):
        if sum(isinstance(cell, str) and bool(cell.strip()) for cell in row) >= 2 and index + 1 < len(rows):
            return index
    return None


def _sheet_rows(rows: list[list[Any]], start: int) -> Iterator[Item]:
    header = [str(cell).strip() for cell in rows[start]]
    for index in range(start + 1, len(rows)):
        cells = [_cell(cell) for cell in rows[index]]
        if not any(cell.strip() for cell in cells):
            yield index + 1, Unusable("empty_row")
            continue
        yield index + 1, {name: cell for name, cell in zip(header, cells, strict=False) if name}


def _last_row(stream: IO[bytes], sheet: str) -> int:
    """The last row the sheet declares: calamine leaves out empty rows at the end, and they are to be counted."""
    import re
    import zipfile
    from html import unescape

    with zipfile.ZipFile(stream) as book:
        if not {"xl/workbook.xml", "xl/_rels/workbook.xml.rels"} <= set(book.namelist()):
            return 0
        workbook, links = (
            book.read(f"xl/{name}").decode("utf-8", "replace")
            for name in ("workbook.xml", "_rels/workbook.xml.rels")
        )
        wanted = [
            tag
            for tag in re.findall(r"<sheet [^>]*>", workbook)
            if unescape(_attribute(tag, "name")) == sheet
        ]
        link = _attribute(wanted[0], "r:id") if wanted else ""
        targets = [tag for tag in re.findall(r"<Relationship [^>]*>", links) if _attribute(tag, "Id") == link]
        target = "xl/" + _attribute(targets[0], "Target").removeprefix("/xl/") if targets else ""
        if target not in book.namelist():
            return 0
        last, tail = 0, b""
        with book.open(target) as sheet_xml:
            while piece := sheet_xml.read(2**20):
                for number in re.findall(rb'<row[^>]* r="(\d{1,7})"', tail + piece):
                    last = max(last, int(number))
                tail = piece[-256:]
    return last


def _attribute(tag: str, name: str) -> str:
    import re

    found = re.search(rf'\s{name}="([^"]*)"', tag)
    return found.group(1) if found else ""


def _cell(value: Any) -> str:
    """A cell as text: whole numbers without a fraction, dates as ISO."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return "" if value is None else str(value)
