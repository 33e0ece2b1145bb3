"""The process that holds one set of weights, seen from outside: requests go in, events come back to who asked."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from core.chat.speakers import Speaker
from core.runs.process import environment
from data.errors import FactoryError, Finding, refuse

CHECKOUT = Path(__file__).resolve().parents[2]
Listener = Callable[[dict[str, Any]], None]
ENDS = ("loaded", "done", "rendered", "refused")
"""Events after which nothing more comes for a request."""


class Worker:
    """One process. Its threads end with it; `close` ends it at once, whatever it does."""

    def __init__(self, home: Path, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._listeners: dict[int, Listener] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.used = time.monotonic()
        self.known: dict[str, Speaker] = {}
        """Speakers that are ready, by key."""
        self.facts: dict[str, dict[str, Any]] = {}
        """What was told when each was loaded."""
        with log.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "core.training.chat", str(home)],
                cwd=CHECKOUT,
                env=_environment(home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                start_new_session=True,  # Ctrl-C in the terminal stops an answer, not the model
            )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    @property
    def busy(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._listeners)

    def send(self, request: dict[str, Any], listener: Listener) -> int:
        """Ask; `listener` is called from a thread with every event, last one of ENDS. The number to stop it by."""
        number = next(self._numbers)
        with self._lock:
            self._listeners[number] = listener
            self.used = time.monotonic()
        try:
            self._write({"id": number, **request})
        except OSError:
            self._end_all()
        return number

    def stop(self, number: int) -> None:
        """Ask an answer to end at its next token. Of an answer that is over, nothing happens."""
        with contextlib.suppress(OSError):
            self._write({"id": 0, "do": "stop", "of": number})

    def ask(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The events of a request, as they come. Leaving the loop early stops the answer. Raises FactoryError."""
        events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        number = self.send(request, events.put)
        over = False
        try:
            while not over:
                event = events.get()
                over = event["event"] in ENDS
                if event["event"] == "refused":
                    raise error_of(event)
                yield event
        finally:
            if not over:
                self.stop(number)

    def close(self) -> None:
        """End the process and free its memory. Idempotent."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._log.unlink(missing_ok=True)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except ValueError as closed:
                raise BrokenPipeError from closed

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed while it was read
            for line in self._process.stdout:
                event = json.loads(line)
                number = event.pop("id")
                with self._lock:
                    self.used = time.monotonic()
                    ended = event["event"] in ENDS
                    listener = self._listeners.pop(number, None) if ended else self._listeners.get(number)
                if listener is not None:
                    listener(event)
        self._end_all()

    def _end_all(self) -> None:
        """Tell everybody who still waits that the process is gone."""
        with self._lock:
            waiting, self._listeners = list(self._listeners.values()), {}
        for listener in waiting:
            listener({"event": "refused", "findings": [self._gone().to_json()]})

    def _gone(self) -> Finding:
        code = self._process.wait()
        if code == -9:
            why = "it was killed by signal 9: closed by somebody, or out of memory"
        else:
            why = f"exit {code}: {self._last_words()}"
        return Finding(
            "chat_ended", f"The chat process has ended ({why}); send the message again to start another."
        )

    def _last_words(self) -> str:
        from core.runs.storage import tail

        lines = [line.strip() for line in tail(self._log, 20).splitlines() if line.strip()]
        return lines[-1][:200] if lines else "without a word"


def error_of(event: dict[str, Any]) -> FactoryError:
    """The refusal in an event."""
    return (
        FactoryError([Finding(**finding) for finding in event["findings"]])
        if event["findings"]
        else _unknown()
    )


def _unknown() -> FactoryError:
    return refuse("chat_ended", "The chat process has ended; send the message again to start another.")


def _environment(home: Path) -> dict[str, str]:
    """What a training process would get, and no more threads of its own than it is told."""
    names = [name for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ]
    return environment(os.environ, names, (), home) | {"TOKENIZERS_PARALLELISM": "false"}
