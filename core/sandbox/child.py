"""The parent's side of the limited child process: start, ask with a time limit, end, start again."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HOST = Path(__file__).with_name("host.py")
READY_SECONDS = 60.0
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


class ChildError(Exception):
    """The child could not answer. The message is one line for people."""


class ChildTimeout(ChildError):
    """No answer within the time limit; the child was ended."""


class ChildRaised(ChildError):
    """The task raised; `line` is the line of a user's file and `row` the row it was about, where known."""

    def __init__(self, message: str, line: int | None, row: int | None) -> None:
        self.line, self.row = line, row
        super().__init__(message)


class Child:
    """A child process that does one task. Started at the first question, and again after it was ended.

    `isolated` cuts it off (see `isolate`) and gives it an empty environment; otherwise it is an ordinary process of
    the user with the user's environment, only watched by the clock, which prints to our stderr when `log` is set.
    """

    def __init__(
        self,
        task: str,
        settings: Mapping[str, Any],
        *,
        isolated: bool = True,
        memory_mb: int = 4096,
        ready_seconds: float = READY_SECONDS,
        log: bool = True,
    ) -> None:
        self._log = log and not isolated
        self._start = {"task": task, "settings": settings, "isolated": isolated, "memory_mb": memory_mb}
        self._ready_seconds = ready_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._buffer = b""
        self.missing: tuple[str, ...] = ()
        """What the system did not let the child be cut off from, known once it is started."""
        self.about: Any = None
        """What the task tells about itself at the start."""

    def start(self) -> None:
        """Start the child unless it runs. Raises ChildTimeout, ChildRaised or ChildError."""
        if self._process is not None:
            return
        isolated = bool(self._start["isolated"])
        folder = tempfile.mkdtemp(prefix="factory-child-")
        process = subprocess.Popen(
            [sys.executable, "-P", str(HOST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._log else subprocess.DEVNULL,
            cwd=folder,
            env=_bare_environment(folder) if isolated else dict(os.environ),
            start_new_session=True,
        )
        self._process, self._buffer = process, b""
        self._end = weakref.finalize(self, _end, process, folder)
        self._write({**self._start, "writable": folder})
        reply = self._read(time.monotonic() + self._ready_seconds)
        if "raised" in reply:
            self.close()
            raise ChildRaised(reply["raised"], reply["line"], reply["row"])
        self.missing, self.about = tuple(reply["missing"]), reply["about"]

    def ask(self, request: Any, seconds: float) -> Iterator[Any]:
        """The values the task gives to a request, each within `seconds` of the one before.

        Raises ChildTimeout, ChildRaised, or ChildError when the child was ended from outside.
        """
        self.start()
        self._write(request)
        while True:
            reply = self._read(time.monotonic() + seconds)
            if "end" in reply:
                return
            if "raised" in reply:
                self._read(time.monotonic() + seconds)  # its end mark
                raise ChildRaised(reply["raised"], reply["line"], reply["row"])
            try:
                yield reply["value"]
            except GeneratorExit:  # nobody waits for the rest: it must not answer the next question
                self.close()
                raise

    def close(self) -> None:
        """End the child and everything it started; the next question starts a new one."""
        if self._end is not None:
            self._end()
        self._process, self._end = None, None

    def _write(self, line: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as problem:
            raise self._ended() from problem

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise ChildTimeout("no answer within the time limit")
                got = os.read(self._process.stdout.fileno(), 1 << 20)
                if not got:
                    raise self._ended()
                self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ended(self) -> ChildError:
        assert self._process is not None
        process = self._process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        code = process.returncode
        self.close()
        return ChildError(f"its process ended by itself (exit code {code}), for lack of memory perhaps")


def answer_each(
    child: Child, items: Sequence[Any], seconds: float, *, most_timeouts: int = 8
) -> list[tuple[Any, str | None]]:
    """One (value, None) per item, or (None, why) where the child gave none; the child is started again in between.

    After `most_timeouts` items without an answer the rest is not tried: (None, why) as well.
    """
    answers: list[tuple[Any, str | None]] = []
    failures = 0
    while len(answers) < len(items):
        if failures >= most_timeouts:
            answers += [(None, f"not tried after {failures} answers without a result")] * (
                len(items) - len(answers)
            )
            break
        try:
            for value in child.ask({"items": list(items[len(answers) :])}, seconds):
                answers.append((value, None))
            assert len(answers) == len(items)
        except ChildTimeout:
            failures += 1
            answers.append((None, f"no result within {seconds:g} s"))
        except ChildError as problem:
            failures += 1
            answers.append((None, str(problem)))
    return answers


def _bare_environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = {"HOME": folder, "TMPDIR": folder, "MPLCONFIGDIR": folder, "OMP_NUM_THREADS": "1"}
    return {**kept, **own, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was never flushed into a dead child
                pipe.close()
    shutil.rmtree(folder, ignore_errors=True)
