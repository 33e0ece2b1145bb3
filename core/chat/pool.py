"""The models that are loaded: one process for each set of weights, ended when nobody needed it for a while."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from core.chat.room import check_room, training
from core.chat.settings import settings_of, turns_of
from core.chat.speakers import Speaker
from core.chat.worker import Listener, Worker
from core.job.machine import Machine, this_machine
from data.errors import FactoryError

IDLE = 300.0
"""Seconds after which a model that nobody talks to is unloaded."""


class Pool:
    """Loads models when they are needed and as far as they fit; any thread may ask."""

    def __init__(self, home: Path, *, idle: float = IDLE, machine: Machine | None = None) -> None:
        self.home, self._idle, self._machine = home, idle, machine
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._closed = threading.Event()
        self._numbers = itertools.count(1)
        if idle > 0:
            threading.Thread(target=self._tidy, daemon=True).start()

    def load(self, speaker: Speaker) -> Worker:
        """The worker that holds a speaker's weights, loaded first if need be: seconds to minutes.

        Models that nobody talks to make room. Raises FactoryError when it does not fit or cannot be loaded.
        """
        with self._loading:  # one at a time: two would count the same free memory
            worker, half = self._alive(speaker.weights), False
            if worker is None:
                half = self._make_room(speaker)
                worker = self._start(speaker.weights)
            if worker.known.get(speaker.key) != speaker:
                self._introduce(worker, speaker, half=half)
            worker.used = time.monotonic()
            return worker

    def answer(
        self, speaker: Speaker, messages: Any, settings: dict[str, Any]
    ) -> Generator[dict[str, Any], None, None]:
        """The events of an answer as they come: start, text, done. Leaving the loop stops it. Raises FactoryError."""
        request = self._request(speaker, messages, settings)
        yield from self.load(speaker).ask(request)

    def begin(
        self, speaker: Speaker, messages: Any, settings: dict[str, Any], listener: Listener
    ) -> tuple[Worker, int]:
        """Start an answer whose events go to `listener`; what to stop it by. Raises FactoryError."""
        request = self._request(speaker, messages, settings)
        worker = self.load(speaker)
        return worker, worker.send(request, listener)

    def render(self, speaker: Speaker, messages: Any) -> dict[str, Any]:
        """The conversation as the model will read it: text, tokens, count. Raises FactoryError."""
        request = {"do": "render", "speaker": speaker.key, "messages": turns_of(messages)}
        (told,) = list(self.load(speaker).ask(request))
        return told

    def loaded(self) -> list[dict[str, Any]]:
        """What lies in memory: weights, keys of speakers, bytes, whether it answers, seconds until it is unloaded."""
        with self._lock:
            found = [(name, worker) for name, worker in self._workers.items() if worker.alive]
        return [self._told(name, worker) for name, worker in found]

    def unload(self, weights: str | None = None) -> int:
        """End one set of weights, or all; how many were ended."""
        with self._lock:
            names = [name for name in self._workers if weights in (None, name)]
        for name in names:
            self._drop(name)
        return len(names)

    def close(self) -> None:
        """End everything. Idempotent."""
        self._closed.set()
        self.unload()

    def _request(self, speaker: Speaker, messages: Any, settings: dict[str, Any]) -> dict[str, Any]:
        checked = settings_of(settings).model_dump()
        return {"do": "answer", "speaker": speaker.key, "messages": turns_of(messages), "settings": checked}

    def _alive(self, weights: str) -> Worker | None:
        with self._lock:
            found = self._workers.get(weights)
        return found if found is not None and found.alive else None

    def _start(self, weights: str) -> Worker:
        self._drop(weights)
        made = Worker(self.home, self.home / "cache" / "chat" / f"{os.getpid()}-{next(self._numbers)}.log")
        with self._lock:
            self._workers[weights] = made
        return made

    def _introduce(self, worker: Worker, speaker: Speaker, *, half: bool) -> None:
        try:
            (told,) = list(worker.ask({"do": "load", "speaker": speaker.to_json(), "half": half}))
        except FactoryError:
            if not worker.known:
                self._drop(speaker.weights)
            raise
        worker.known[speaker.key], worker.facts[speaker.key] = speaker, told

    def _make_room(self, speaker: Speaker) -> bool:
        """Unload idle models, the longest unused first, until this one fits; whether it fits in 16 bits only.

        Raises FactoryError when it does not.
        """
        while True:
            try:
                return self._check(speaker)
            except FactoryError as problem:
                if problem.findings[0].code != "memory_too_small":
                    raise
                with self._lock:
                    idle = [(one.used, name) for name, one in self._workers.items() if not one.busy]
                if not idle:
                    raise
                self._drop(min(idle)[1])

    def _check(self, speaker: Speaker) -> bool:
        machine = self._machine or this_machine()
        return check_room(speaker, self.home, machine, gpu=machine.has_gpu)

    def _told(self, name: str, worker: Worker) -> dict[str, Any]:
        import psutil

        try:
            memory = psutil.Process(worker.pid).memory_info().rss
        except psutil.Error:
            memory = 0
        left = (
            None
            if worker.busy or self._idle <= 0
            else max(0.0, self._idle - (time.monotonic() - worker.used))
        )
        return {
            "weights": name,
            "speakers": list(worker.known),
            "memory": memory,
            "busy": worker.busy,
            "unloads_in": left,
            **{
                key: value
                for facts in list(worker.facts.values())[:1]
                for key, value in facts.items()
                if key != "event"
            },
        }

    def _drop(self, name: str) -> None:
        with self._lock:
            worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()

    def _tidy(self) -> None:
        while not self._closed.wait(min(5.0, self._idle / 4)):
            now = time.monotonic()
            with self._lock:
                idle = [
                    name
                    for name, one in self._workers.items()
                    if not one.busy and now - one.used > self._idle
                ]
                idle += [name for name, one in self._workers.items() if not one.alive]
            for name in idle:
                self._drop(name)


def note_on_training(home: Path) -> str | None:
    """A sentence for who chats while something trains; None when nothing does."""
    runs = training(home)
    if not runs:
        return None
    who = (
        f"Run {runs[0].id} is training and goes"
        if len(runs) == 1
        else f"{len(runs)} runs are training and go"
    )
    return f"{who} first; answers may come slowly."
