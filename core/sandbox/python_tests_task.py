"""Run programs against tests, each in a fork of its own with its own limits. For programs that a model wrote."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.sandbox import isolate


class Task:
    """Settings: {seconds}, the time of one program with all its tests."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._seconds: float = settings["seconds"]

    def about(self) -> None:
        """Nothing to tell."""

    def answer(self, request: dict[str, Any]) -> Iterator[list[bool]]:
        """For each [program, [test, ...]] of {items}: which tests passed; all False when it hung, left or raised."""
        for program, tests in request["items"]:
            yield self._run(program, tests)

    def _run(self, program: str, tests: list[str]) -> list[bool]:
        folder = tempfile.mkdtemp(dir=Path.cwd())
        ours, theirs = os.pipe()
        token = secrets.token_hex(16)
        child = os.fork()
        if not child:
            os.close(ours)
            _child(program, tests, folder, theirs, token, self._seconds)
        os.close(theirs)
        told = _read(ours, time.monotonic() + self._seconds)
        os.close(ours)
        _end(child)
        shutil.rmtree(folder, ignore_errors=True)
        first, _, rest = told.partition(b"\n")
        # Without the token the program left before its tests were done, or wrote into the pipe by guessing.
        return list(json.loads(rest)) if first.decode("ascii", "replace") == token else [False] * len(tests)


def _child(program: str, tests: list[str], folder: str, pipe: int, token: str, seconds: float) -> None:
    """Never returns: the program, its tests, the result into the pipe, and out."""
    try:
        isolate.die_with_parent()
        os.setsid()
        os.chdir(folder)
        isolate.limit_run(cpu_seconds=int(seconds) + 1)
        passed = _tested(program, tests)
        os.write(pipe, f"{token}\n{json.dumps(passed)}".encode())
    finally:
        os._exit(0)


def _tested(program: str, tests: list[str]) -> list[bool]:
    space: dict[str, Any] = {"__name__": "__main__"}
    if not _runs(program, space):
        return [False] * len(tests)
    return [_runs(test, space) for test in tests]


def _runs(text: str, space: dict[str, Any]) -> bool:
    try:
        exec(compile(text, "<answer>", "exec"), space)  # noqa: S102 - the purpose of this process
    except BaseException:  # SystemExit counts as a failure: a program must not pass by leaving
        return False
    return True


def _read(pipe: int, deadline: float) -> bytes:
    told = b""
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        got = os.read(pipe, 1 << 16)
        if not got:
            break
        told += got
        if len(told) > 1 << 20:
            break
    return told


def _end(child: int) -> None:
    """End the program and all it started: everybody else in this process table, when it is our own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL) if os.getpid() == 1 else os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
