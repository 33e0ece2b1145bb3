"""The events of a training on another machine: it writes into a file of its own, and one process here copies whole
lines of that into the run's events. Two machines that append to one file spoil it on a network file system (open(2)).

What was copied says so itself: the line's source and the offset behind it there stand in the copy, written with it in
one write. Whoever is killed in between leaves nothing doubled and nothing out. Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.runs.folder import Run
from core.runs.journal import Journal, Line, parse, read_lines
from core.runs.locks import open_lock, try_lock
from core.runs.storage import FULL, give_up_reserve

VARIABLE = "FACTORY_EVENTS"
"""Names the events file of a training process, where that is not the run's own."""
MARK = "carried"
"""Key of a copied event: its source, and the offset behind it there."""


def events_file(run: Run) -> Path:
    """The file that the processes of a training on this machine write events into."""
    name = Path(os.environ.get(VARIABLE) or run.events.name).name
    return run.path / name


def name_for(source: str) -> str:
    """The name of a source's events file in the run folder, such as `events.slurm-12-0.jsonl`."""
    return f"events.{source}.jsonl"


class Courier:
    """Copies what the machines of `group` write. Many may be made for a run: one at a time carries, the others wait."""

    def __init__(self, run: Run, group: str) -> None:
        self.run, self.group = run, group
        # Made here, or this machine's view of the folder may hide it for a minute (nfs(5), acdirmax).
        self._lock: int | None = open_lock(run.path / name_for(f"{group}-0"))
        self._held = False
        self._reached: dict[str, int] | None = None

    def carry(self, *, last: bool = False) -> int:
        """Copy the whole lines that came since the last time, in the order of their times; how many.

        `last`: the machines are done; what is there is all there will be. Raises OSError, then only, when the disk is
        full; before that what does not fit is copied later.
        """
        if not self._mine():
            return 0
        try:
            return self._copy(last)
        except OSError as error:
            self._reached = None  # some of it may stand there
            if error.errno not in FULL or (last and not give_up_reserve(self.run.path)):
                raise
            return self._copy(last) if last else 0

    def close(self) -> None:
        """Let another one carry. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock, self._held = None, False

    def _mine(self) -> bool:
        if not self._held and self._lock is not None:
            self._held = try_lock(self._lock)
        return self._held

    def _copy(self, last: bool) -> int:
        if self._reached is None:
            self._reached = reached(self.run)
        found = [
            (*news, source)
            for source in self._sources()
            for news in _news(self._path(source), self._reached.get(source, 0), last)
        ]
        if not found:
            return 0
        found.sort(key=lambda one: one[0])
        journal = Journal(self.run.events)
        try:
            journal.relay([_marked(content, source, end) for _, content, end, source in found])
        finally:
            journal.close()
        self._reached |= {source: end for _, _, end, source in found}
        return len(found)

    def _sources(self) -> list[str]:
        start, end = name_for("*").split("*")
        names = (path.name for path in self.run.path.glob(name_for(f"{self.group}-*")))
        return sorted(name.removeprefix(start).removesuffix(end) for name in names)

    def _path(self, source: str) -> Path:
        return self.run.path / name_for(source)


def reached(run: Run) -> dict[str, int]:
    """How much of each source stands in the run's events: the offset behind the last of its lines that was copied."""
    found: dict[str, int] = {}
    offset = 0
    while True:
        lines, end = read_lines(run.events, offset)
        for line in lines:
            record = parse(line.content) if MARK.encode() in line.content else None
            mark = record.get(MARK) if record else None
            if isinstance(mark, list) and len(mark) == 2 and isinstance(mark[1], int):
                found[str(mark[0])] = max(mark[1], found.get(str(mark[0]), 0))
        if end == offset:
            return found
        offset = end


def _news(path: Path, offset: int, last: bool) -> Iterator[tuple[float, bytes, int]]:
    """The lines of a source from `offset` on: when, its bytes, and the offset behind it.

    When is the time of the line, and never before that of one above it, whatever was done to that machine's clock: an
    offset stands for all that is before it.
    """
    when = 0.0
    while True:
        if not path.exists() or path.stat().st_size < offset:
            return  # a machine that went down took some of it along: what comes is written behind
        lines, end = read_lines(path, offset)
        for line in lines:
            # A piece that has not arrived while a later one has reads as zeros; a text of JSON holds none.
            if b"\0" in line.content and not last:
                return
            if content := line.content.strip():
                record = parse(content)
                when = max(when, _when(record) if record else 0.0)
                yield when, content if record else _unreadable(path, line), line.end
        if end == offset:
            return
        offset = end


def _marked(content: bytes, source: str, end: int) -> bytes:
    """The same line with its mark: a JSON object ends with its brace."""
    return content[:-1] + b", " + json.dumps({MARK: [source, end]}).encode()[1:]


def _unreadable(path: Path, line: Line) -> bytes:
    text = (
        f"The event before byte {line.end} of {path.name} cannot be read (torn or damaged) and is left out."
    )
    stamps = {"t": round(time.time(), 3), "mono": round(time.monotonic(), 6)}
    return json.dumps({"event": "warning", "code": "unreadable_event", "message": text, **stamps}).encode()


def _when(record: dict[str, Any]) -> float:
    t = record.get("t")
    return float(t) if isinstance(t, int | float) else 0.0
