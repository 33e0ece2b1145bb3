"""Pieces of a run's events and log by byte offset, as the pages get them: whole lines, nothing that could do harm."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from core.runs.events import KINDS
from core.runs.journal import read_lines
from webui.api.shown import plain_line

EVENT_BYTES = 256 << 10
"""Most bytes of events in one piece."""
LOG_BYTES = 24 << 10
"""Most bytes of log in one live piece: at 4 pieces a second some thousand lines. The rest is fetched by byte."""
LEAST_LOG_BYTES = 4 << 10
"""And when many listen, who share what the server can send."""
LONGEST_LINE = 64 << 10


@dataclass(frozen=True)
class Piece:
    """Part of a file that is ready to be sent: JSON, and the offsets it begins at and goes on from."""

    begin: int
    end: int
    data: bytes


def size_of(path: Path) -> int:
    """Bytes in a file; 0 when it is not there (yet)."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_events(
    path: Path,
    offset: int,
    most: int = EVENT_BYTES,
    limit: int | None = None,
    skip: Collection[str] = (),
) -> tuple[list[Any], int]:
    """Events from an offset on as plain dicts with the offset behind each in `end`, and where to go on.

    An offset beyond the end means the end; one inside a line means the next line. Kinds in `skip` are left out.
    """
    offset = _to_line(path, min(offset, size_of(path)))
    lines, reached = read_lines(path, offset, most)
    found: list[Any] = []
    for line in lines:
        if limit is not None and len(found) >= limit:
            return found, found[-1]["end"]
        event = _event(line.content, line.end)
        if event is not None and event["event"] not in skip:
            found.append(event)
    return found, reached


def _event(content: bytes, end: int) -> dict[str, Any] | None:
    if not content.strip():
        return None
    try:
        record = orjson.loads(content)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        text = f"The event before byte {end} cannot be read (torn or damaged) and is left out."
        return {"event": "warning", "code": "unreadable_event", "message": text, "end": end}
    return {**record, "end": end} if record["event"] in KINDS else None


def _to_line(path: Path, offset: int) -> int:
    """The offset, or the start of the next whole line when it points into one."""
    if offset <= 0:
        return 0
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        file.seek(offset - 1)
        if file.read(1) == b"\n":
            return offset
        while block := file.read(1 << 16):
            if (at := block.find(b"\n")) >= 0:
                return file.tell() - len(block) + at + 1
        return file.tell()


def log_before(path: Path, before: int | None, most: int) -> dict[str, Any]:
    """The whole lines of about `most` bytes in front of a byte (None: the end of the file)."""
    size = size_of(path)
    end = size if before is None else max(0, min(before, size))
    begin = max(0, end - most)
    block = _read(path, begin, end)
    if begin and (cut := block.find(b"\n")) >= 0:  # the first line is only half there
        begin, block = begin + cut + 1, block[cut + 1 :]
    return _page(block, begin, begin + len(block), size)


def log_after(path: Path, after: int, most: int) -> dict[str, Any]:
    """The whole lines of about `most` bytes from a byte on; a line still being written is left for later."""
    size = size_of(path)
    begin = _line_start(path, max(0, min(after, size)))
    block = _whole(_read(path, begin, min(size, begin + most)))
    return _page(block, begin, begin + len(block), size)


def log_tail(path: Path, lines: int, most: int = 1 << 20) -> dict[str, Any]:
    """The last lines of a file of any size, reading at most `most` bytes."""
    size = size_of(path)
    begin, block = size, b""
    while begin and size - begin < most and block.count(b"\n") <= lines:
        begin = max(0, begin - (1 << 16))
        block = _read(path, begin, size)
    block = _whole(block)
    parts = block.split(b"\n")[:-1]
    skip = max(1 if begin else 0, len(parts) - lines)  # the first may be half a line
    cut = sum(len(part) + 1 for part in parts[:skip])
    return _page(block[cut:], begin + cut, begin + len(block), size)


def log_live(path: Path, after: int, size: int, most: int = LOG_BYTES) -> dict[str, Any] | None:
    """What is new in a log since `after`, at most the last `most` bytes of it; None when no line is complete yet."""
    begin = min(after, size)
    if size - begin > most:
        begin = _line_start(path, size - most)
    block = _whole(_read(path, begin, size))
    return _page(block, begin, begin + len(block), size) if block else None


def _line_start(path: Path, offset: int) -> int:
    """The offset, or the next line's start within LONGEST_LINE; in a longer line the offset itself."""
    if offset <= 0:
        return 0
    block = _read(path, offset - 1, offset + LONGEST_LINE)
    if block[:1] == b"\n":
        return offset
    at = block.find(b"\n")
    return offset + at if at >= 0 else offset


def _whole(block: bytes) -> bytes:
    """The block up to its last newline; all of it when it is one line so long that nobody should wait for its end."""
    cut = block.rfind(b"\n") + 1
    return block[:cut] if cut or len(block) < LONGEST_LINE // 2 else block


def _read(path: Path, begin: int, end: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return b""
    try:
        return os.pread(descriptor, max(0, end - begin), begin)
    finally:
        os.close(descriptor)


def _page(block: bytes, begin: int, end: int, size: int) -> dict[str, Any]:
    text = block.decode("utf-8", "replace").replace("\0", "").removesuffix("\n")
    lines = [plain_line(line) for line in text.split("\n")] if block else []
    return {"from": begin, "to": end, "size": size, "lines": lines}
