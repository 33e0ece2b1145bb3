"""How a supervisor sleeps: until a byte in the run's pipe, a signal, or the end of a process.

Part of a waiting supervisor, so it imports nothing big (core/runs/supervisor.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from core.runs.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from core.runs.folder import Run

BLIND = 1.0
"""Seconds between looks where the system offers nothing to wait for (no pipe in the folder, no pidfd)."""


class Watch:
    """The things that wake the supervisor of a run, by its folder. SIGTERM is remembered in `terminated`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.terminated = False
        self._stop_file = f"{folder}/stop"
        self._pipe = _open_pipe(f"{folder}/wake")
        self._signals, writing = os.pipe()
        for descriptor in (self._signals, writing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
        for number in (signal.SIGINT, signal.SIGHUP):  # a closed terminal is no reason to end
            signal.signal(number, signal.SIG_IGN)

    def stop_request(self) -> str | None:
        """What the run is asked to do: `stop`, `now`, or None when nobody asked."""
        try:
            with open(self._stop_file, encoding="utf-8", errors="replace") as file:
                text = file.read().strip()
        except FileNotFoundError:
            return "stop" if self.terminated else None
        return "now" if text == "now" else "stop"

    def sleep(self, seconds: float | None = None) -> None:
        """Sleep until something happens, at most `seconds`; without them and without a pipe, a second."""
        self._wait([], seconds)

    def sleep_until_one_ends(self, holders: Sequence[Mapping[str, Any]]) -> None:
        """Sleep until one of these processes has ended, or something else happens."""
        watched = [_open_process(holder) for holder in holders]
        known = [descriptor for descriptor in watched if descriptor is not None]
        try:
            # An unknown holder is a process that outlived its supervisor: nobody tells when it ends.
            self._wait(known, None if len(known) == len(watched) else BLIND)
        finally:
            for descriptor in known:
                os.close(descriptor)

    def _wait(self, more: Sequence[int], seconds: float | None) -> None:
        poll = select.poll()
        for descriptor in (self._signals, *more, *([self._pipe] if self._pipe is not None else [])):
            poll.register(descriptor, select.POLLIN)
        if self._pipe is None:
            seconds = BLIND if seconds is None else min(seconds, BLIND)
        poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        for descriptor in (self._signals, *([self._pipe] if self._pipe is not None else [])):
            with contextlib.suppress(BlockingIOError):
                while os.read(descriptor, 4096):
                    pass

    def _on_terminate(self, number: int, frame: object) -> None:
        self.terminated = True


def wake(run: Run) -> bool:
    """Make the run's supervisor look around; False when nobody listens. A missing pipe is fine: it looks by itself."""
    try:
        descriptor = os.open(run.wake, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(descriptor, b"!")
    except BlockingIOError:
        pass  # full of earlier calls
    finally:
        os.close(descriptor)
    return True


def _open_pipe(path: str) -> int | None:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None


def _open_process(holder: Mapping[str, Any]) -> int | None:
    try:
        descriptor = os.pidfd_open(holder["pid"])
    except (OSError, KeyError, TypeError, AttributeError):
        return None
    if process_start(holder["pid"]) != holder.get("start"):  # the number was given to another process
        os.close(descriptor)
        return None
    return descriptor
