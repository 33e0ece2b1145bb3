"""The child process: reads a task and its settings, then answers requests, one JSON line each way.

Started by path (`python -P host.py`), so that nothing of the house is imported but the one task asked for.
Lines to the child: {task, settings, isolated, memory_mb, writable} first, then requests. Lines from it:
{"ready": true, "missing": [...]} first, then per request any number of {"value": ...} and one {"end": true};
{"raised": "...", "line": N, "row": N} stands in for what went wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

CHECKOUT = Path(__file__).resolve().parents[2]
TASKS = ("regex", "math", "gym", "python_file", "python_tests")


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests, replies = _own_the_pipes()
    start = json.loads(requests.readline())
    assert start["task"] in TASKS
    sys.path.append(str(CHECKOUT))
    from core.sandbox import isolate

    missing: list[str] = []
    if start["isolated"]:
        isolate.limit(memory_mb=start["memory_mb"])
        missing = isolate.isolate(Path(start["writable"]))
    else:
        isolate.fork_watched()
    try:
        task = importlib.import_module(f"core.sandbox.{start['task']}_task").Task(start["settings"])
    except BaseException as problem:  # a user's file may raise anything, SystemExit too
        _send(replies, raised(problem))
        return
    _send(replies, {"ready": True, "missing": missing, "about": task.about()})
    for line in requests:
        _answer(task, json.loads(line), replies)


def _own_the_pipes() -> tuple[TextIO, TextIO]:
    """The two pipes under private numbers: what a task prints goes to stderr, what it reads is empty."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return requests, replies


def _answer(task: Any, request: Any, replies: TextIO) -> None:
    try:
        for value in task.answer(request):
            _send(replies, {"value": value})
    except BaseException as problem:
        _send(replies, raised(problem))
    _send(replies, {"end": True})


def _send(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def raised(problem: BaseException) -> dict[str, Any]:
    """An exception in one line, with the last line of it that stands in a file outside this checkout."""
    told = str(problem) if not isinstance(problem, KeyError) else f"no key {problem}"
    first = (told.strip().splitlines() or [""])[0][:300]
    frames = [one for one in traceback.extract_tb(problem.__traceback__) if _is_users(one.filename)]
    line = frames[-1].lineno if frames else getattr(problem, "lineno", None)
    with contextlib.suppress(Exception):
        traceback.print_exception(problem)
    kind = type(problem).__name__
    row = getattr(problem, "factory_row", None)
    return {"raised": f"{kind}: {first}" if first else kind, "line": line, "row": row}


def _is_users(filename: str) -> bool:
    return not filename.startswith((str(CHECKOUT), sys.prefix, sys.base_prefix, "<frozen"))


if __name__ == "__main__":
    main()
