"""Append-only lines of JSON that several processes write and any reader may follow. Standard library only.

One write per line, so lines of two writers never mix; the byte offset is the order. Readers take whole lines.
The events of a run are such lines; `core.runs.events` gives them their types.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.runs.storage import FULL

BLOCK = 1 << 20
LONGEST_LINE = 16 << 20
"""Bytes; what has no newline for longer is damage, and is skipped."""


class Line(NamedTuple):
    """One whole line: its bytes without the newline, and the offset just behind it."""

    content: bytes
    end: int


class Journal:
    """A writer. Every record gets `t` (wall clock, for people) and `mono` (monotonic seconds)."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        self._synced = 0.0
        self.lost = 0

    def append(self, record: Mapping[str, Any], *, must: bool = False) -> bool:
        """Write one record in one write; True when it is on its way to the disk.

        `must`: sync it to the disk before returning, and raise OSError when that fails. Other records are
        synced at most once a second, and on a full disk they are counted in `lost` instead of ending the run:
        the next record that fits is preceded by a warning that tells how many are missing.
        """
        if self.lost and self._write(_warning(self.lost), must=False):
            self.lost = 0
        if not self._write(record, must=must):
            self.lost += 1
            return False
        now = time.monotonic()
        if must or now - self._synced >= 1.0:
            self._synced = now
            os.fsync(self._file)
        return True

    def relay(self, lines: Sequence[bytes]) -> None:
        """Write lines that were made elsewhere, in one write, and sync them. Raises OSError when not all fitted."""
        text = b"".join(line + b"\n" for line in lines)
        if not self._ends_with_newline():
            text = b"\n" + text
        while text:
            text = text[os.write(self._file, text) :]
        os.fsync(self._file)

    def size(self) -> int:
        """The offset behind the last byte: where the next record will begin."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, record: Mapping[str, Any], *, must: bool) -> bool:
        stamped = {**record, "t": round(time.time(), 3), "mono": round(time.monotonic(), 6)}
        line = json.dumps(stamped, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
        if not self._ends_with_newline():
            line = b"\n" + line  # a torn line stays one bad line and spoils no other
        try:
            written = os.write(self._file, line)
        except OSError as error:
            if must or error.errno not in FULL:
                raise
            return False
        if written < len(line) and must:
            os.write(self._file, line[written:])  # the rest, or the error that explains the short write
            return True
        return written == len(line)

    def _ends_with_newline(self) -> bool:
        size = os.fstat(self._file).st_size
        return size == 0 or os.pread(self._file, 1, size - 1) == b"\n"


def _warning(lost: int) -> dict[str, Any]:
    text = f"{lost} events are missing here: the disk was full."
    return {"event": "warning", "code": "events_lost", "message": text}


def read_lines(path: Path, offset: int = 0, most: int = 8 << 20) -> tuple[list[Line], int]:
    """Whole lines from byte `offset` on, about `most` bytes of them, and the offset to go on from.

    Stops at the last newline: a line still being written, or torn by a crash, is left for later. A missing
    file has no lines. Raises OSError for other failures.
    """
    lines: list[Line] = []
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return lines, offset
    with file:
        size = file.seek(0, os.SEEK_END)
        if offset > size:  # the file was replaced by a shorter one
            offset = 0
        file.seek(offset)
        rest, at = b"", offset
        while at - offset < most or (rest and len(rest) < LONGEST_LINE):
            block = file.read(BLOCK)
            if not block:
                break
            *whole, rest = (rest + block).split(b"\n")
            for content in whole:
                at += len(content) + 1
                lines.append(Line(content, at))
            if len(rest) >= LONGEST_LINE:
                at += len(rest)
                lines.append(Line(rest[:200], at))
                rest = b""
            if lines and at - offset >= most:
                break
    return lines, at


def read_records(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The records from byte `offset` on as plain dicts, without damaged lines, and the offset behind."""
    records: list[dict[str, Any]] = []
    while True:
        lines, end = read_lines(path, offset)
        records += [record for line in lines if (record := parse(line.content)) is not None]
        if end == offset:
            return records, end
        offset = end


def parse(content: bytes) -> dict[str, Any] | None:
    """The record in a line, or None for an empty, torn or foreign one."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
