"""The live side of the board: one reader per watched run, any number of listeners, nothing that has to be remembered.

A listener is a cursor (byte offsets into events and log) that it can name again after a restart. New bytes are read and
made into JSON once, kept for a few seconds, and handed to every listener that stands where they begin; a listener that
fell behind reads the file by itself. So a slow browser costs nobody anything but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from core.runs.folder import Run
from core.runs.states import read_status
from webui.api.here import Here
from webui.api.lines import LEAST_LOG_BYTES, LOG_BYTES, Piece, log_live, read_events, size_of
from webui.api.meters import Meters
from webui.api.shown import row_of

LOOK = 0.05
"""Seconds between looks at the sizes of watched files: the most a lone event waits."""
BATCH = 0.2
"""Seconds between two pieces of one file: a flood comes five times a second. A little less than the 0.25 between the
events of a run that writes four a second, or each of those would wait for the one before."""
STATE = 1.0
"""Seconds between looks at a run's state, besides those that an event asks for."""
PULSE = 15.0
"""Seconds of silence after which something is sent, so that a dead connection is noticed."""
ALIVE = b"event: alive\ndata: {}\n\n"
"""Sent in silence: a comment would do for the connection, but a page cannot hear comments, and so not their absence."""
SHARED = 1 << 20
"""Bytes of log that all listeners together get in one piece of time: of a flood, many see less each than few."""
WHOLE = 512 << 10
"""Bytes after which messages of one moment are sent in more than one go."""
KEPT = 16
"""Pieces kept per file."""


@dataclass
class Cursor:
    """How far a listener has got in one run."""

    events: int
    log: int
    state: int = 0
    gone: bool = False


class Tail:
    """One watched run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.listeners = 0
        self.events: deque[Piece] = deque(maxlen=KEPT)
        self.log: deque[Piece] = deque(maxlen=KEPT)
        self.events_end, self.log_end = size_of(run.events), size_of(run.log)
        self.log_seen = self.log_end
        self.state: bytes = b""
        self.version = 0
        self.gone = False
        self._row: dict[str, Any] = {}
        self._made = {"events": 0.0, "log": 0.0, "state": float("-inf")}

    def due(self, now: float) -> bool:
        """Whether there is something to read; looks at two file sizes."""
        if now - self._made["state"] >= STATE:
            return True
        if now - self._made["events"] >= BATCH and size_of(self.run.events) != self.events_end:
            return True
        return now - self._made["log"] >= BATCH and size_of(self.run.log) != self.log_seen

    def read(self, now: float) -> bool:
        """Read what is new; True when there is something for listeners. Runs in a thread."""
        self.gone = not self.run.job_json.is_file()
        if self.gone:
            return True
        try:
            return any([self._read_events(now), self._read_log(now), self._read_state(now)])
        except FileNotFoundError:  # deleted while it was read; the next look says so
            return False

    def _read_events(self, now: float) -> bool:
        size = size_of(self.run.events)
        if size < self.events_end:  # put back from a copy
            self.events_end = size
        if size == self.events_end or now - self._made["events"] < BATCH:
            return False
        found, reached = read_events(self.run.events, self.events_end)
        if reached == self.events_end:
            return False
        self._made["events"] = now
        if any(event["event"] in ("state", "start", "done", "error") for event in found):
            self._made["state"] = float("-inf")
        self.events.append(Piece(self.events_end, reached, events_json(self.run.id, found, reached)))
        self.events_end = reached
        return True

    def _read_log(self, now: float) -> bool:
        size = size_of(self.run.log)
        if size < self.log_end:
            self.log_end = size
        if size == self.log_seen or now - self._made["log"] < BATCH:
            return False
        self._made["log"], self.log_seen = now, size
        most = max(LEAST_LOG_BYTES, min(LOG_BYTES, SHARED // max(1, self.listeners)))
        page = log_live(self.run.log, self.log_end, size, most)
        if page is None:
            return False
        self.log.append(Piece(self.log_end, page["to"], log_json(self.run.id, page)))
        self.log_end = page["to"]
        return True

    def _read_state(self, now: float) -> bool:
        if now - self._made["state"] < STATE:
            return False
        self._made["state"] = now
        row = row_of(self.run, read_status(self.run))
        if row == self._row:
            return False
        self._row = row
        self.state = orjson.dumps({"run": self.run.id, "row": row})
        self.version += 1
        return True


def events_json(id: str, events: list[Any], reached: int) -> bytes:
    """The data of an `events` message."""
    return orjson.dumps({"run": id, "events": events, "next": reached})


def log_json(id: str, page: dict[str, Any]) -> bytes:
    """The data of a `log` message."""
    return orjson.dumps({"run": id, **page})


class Hub:
    """All tails of a server, and the one task that reads them while somebody listens."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.meters = Meters(here)
        self.tails: dict[str, Tail] = {}
        self.closing = False
        self.listeners = 0
        self.machine: bytes = b""
        self.machine_version = 0
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._measured = float("-inf")

    def close(self) -> None:
        """The server ends: let every stream end. Called on the loop's own thread."""
        self.closing = True
        self.wake()

    def wake(self) -> None:
        """Let every listener look."""
        self._woken.set()
        self._woken = asyncio.Event()

    @contextlib.contextmanager
    def watching(self, runs: list[Run]) -> Any:
        """Have these runs read while the block lasts."""
        tails = []
        for run in runs:
            tail = self.tails.setdefault(run.id, Tail(run))
            tail.listeners += 1
            tails.append(tail)
        self.listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        try:
            yield tails
        finally:
            self.listeners -= 1
            for tail in tails:
                tail.listeners -= 1
                if not tail.listeners and self.tails.get(tail.run.id) is tail:
                    del self.tails[tail.run.id]

    async def pause(self, seconds: float) -> None:
        """Wait until there is something new, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    async def pause_closing(self, seconds: float) -> None:
        """Wait so long, or until the server ends."""
        for _ in range(max(1, round(seconds / BATCH))):
            if not self.closing:
                await asyncio.sleep(BATCH)

    async def _work(self) -> None:
        while self.listeners and not self.closing:
            now = time.monotonic()
            due = [tail for tail in self.tails.values() if not tail.gone and tail.due(now)]
            measure = now - self._measured >= self.meters.every
            try:
                if (due or measure) and await asyncio.to_thread(self._read, due, now, measure):
                    self.wake()
            except Exception:  # a fault of ours with one run must not leave all others without news
                traceback.print_exc()
                await asyncio.sleep(STATE)
            await asyncio.sleep(LOOK)

    def _read(self, due: list[Tail], now: float, measure: bool) -> bool:
        new = [tail.read(now) for tail in due]
        if measure:
            self._measured = now
            self.machine = orjson.dumps(self.meters.load([tail.run for tail in self.tails.copy().values()]))
            self.machine_version += 1
        return any(new) or measure


async def listen(
    hub: Hub, runs: list[Run], cursors: dict[str, Cursor], gone: Sequence[str] = ()
) -> AsyncIterator[bytes]:
    """The messages of one listener, as server-sent events, until it leaves or the server ends; `gone` are no more."""
    with hub.watching(runs) as tails:
        yield b"retry: 1000\n\n"
        for id in gone:
            yield _frame("gone", _id(cursors), orjson.dumps({"run": id}))
        spoken, measured = time.monotonic(), 0
        while not hub.closing:
            ready: list[bytes] = []  # what is there at one moment is sent in one go
            for tail in tails:
                async for message in _of_one(tail, cursors):
                    ready.append(message)
                    if sum(map(len, ready)) > WHOLE:
                        yield b"".join(ready)
                        ready.clear()
            if measured != hub.machine_version:
                measured = hub.machine_version
                ready.append(_frame("machine", _id(cursors), hub.machine))
            if ready:
                spoken = time.monotonic()
                yield b"".join(ready)
            elif time.monotonic() - spoken > PULSE:
                spoken = time.monotonic()
                yield ALIVE
            await hub.pause(PULSE)


async def _of_one(tail: Tail, cursors: dict[str, Cursor]) -> AsyncIterator[bytes]:
    cursor = cursors[tail.run.id]
    while cursor.events != tail.events_end:
        piece = _kept(tail.events, cursor.events)
        if piece is None:
            piece = await asyncio.to_thread(_events_of, tail.run, cursor.events)
        if piece.end == cursor.events:
            break
        cursor.events = piece.end
        yield _frame("events", _id(cursors), piece.data)
    while cursor.log != tail.log_end:
        piece = _kept(tail.log, cursor.log)
        if piece is None:
            piece = await asyncio.to_thread(_log_of, tail.run, cursor.log)
        cursor.log = piece.end
        if not piece.data:
            break
        yield _frame("log", _id(cursors), piece.data)
    if cursor.state != tail.version:
        cursor.state = tail.version
        yield _frame("state", _id(cursors), tail.state)
    if tail.gone and not cursor.gone:
        cursor.gone = True
        yield _frame("gone", _id(cursors), orjson.dumps({"run": tail.run.id}))


def _kept(pieces: deque[Piece], begin: int) -> Piece | None:
    return next((piece for piece in pieces if piece.begin == begin), None)


def _events_of(run: Run, offset: int) -> Piece:
    found, reached = read_events(run.events, offset)
    return Piece(offset, reached, events_json(run.id, found, reached))


def _log_of(run: Run, offset: int) -> Piece:
    size = size_of(run.log)
    page = log_live(run.log, offset, size)
    return (
        Piece(offset, page["to"], log_json(run.id, page)) if page else Piece(offset, min(offset, size), b"")
    )


def _id(cursors: dict[str, Cursor]) -> bytes:
    return ",".join(f"{id}:{cursor.events}:{cursor.log}" for id, cursor in cursors.items()).encode()


def _frame(event: str, id: bytes, data: bytes) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (event.encode(), id, data)
