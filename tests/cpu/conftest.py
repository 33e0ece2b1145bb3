"""Fixtures of training tests: a home, small data files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.storage import write_json


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    return tmp_path / "home"


def chats(count: int) -> list[dict[str, Any]]:
    """Short conversations of different lengths, with one and two turns."""
    rows = []
    for number in range(count):
        turns = [("user", f"What is {number} and {number}?"), ("assistant", f"It is {2 * number}.")]
        if number % 3 == 0:
            turns += [("user", "Are you sure?"), ("assistant", "Yes, " + "quite " * (number % 5) + "sure.")]
        rows.append({"messages": [{"role": role, "content": content} for role, content in turns]})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    """Rows as JSON lines; the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def next_attempt(run: Run, number: int) -> None:
    """What the launcher and the supervisor do before a resumed training process starts."""
    run.stop_file.unlink(missing_ok=True)
    checkpoints.clean(run)
    newest = checkpoints.newest_complete(run)
    resume = newest.relative_to(run.path).as_posix() if newest else None
    write_json(run.attempt_json, {"attempt": number, "resume": resume})


def work_of(process: Any) -> float:
    """CPU-seconds that a psutil.Process has taken: how much it has done, however long it was kept waiting."""
    return float(sum(process.cpu_times()[:2]))
