"""A home and a slots folder of one's own per test, and the check that nothing of a run is left alive."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.runs import control
from core.runs.folder import Run, list_runs
from core.runs.locks import is_held
from core.runs.process import holders_of
from core.runs.states import Status, read_status

JOB: dict[str, Any] = {
    "schema_version": 1,
    "name": "fault",
    "stage": {"name": "sft"},
    "hardware": {"devices": None},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home folder, on a machine whose queue nobody else uses. Afterwards nothing of its runs may live."""
    monkeypatch.setenv("FACTORY_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("FACTORY_GRACE", "20")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "home"
    yield folder
    left = {run.id: pids for run in list_runs(folder) if (pids := living(run))}
    for pids in left.values():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes were left: {left}"


def living(run: Run) -> list[int]:
    """Processes that belong to the run: its supervisor and everything the training process left."""
    return sorted({*holders_of(run.lock), *holders_of(run.alive)})


def supervisor(run: Run) -> int:
    """The pid of the run's supervisor."""
    (pid,) = holders_of(run.lock)
    return pid


def child(run: Run) -> int:
    """The pid of the run's training process, once it has been started."""
    return int(until(run, lambda status: bool(status.record.get("child"))).record["child"])


def start(home: Path, *behaviour: object, job: dict[str, Any] | None = None, **plan: Any) -> Run:
    """Submit a run whose training process is the stand-in with this behaviour."""
    argv = [sys.executable, "-S", "-m", "tests.faults.stand_in", *map(str, behaviour)]
    return control.submit(
        home, "stage: sft\n", job or JOB, {"argv": argv, "environment": [], "steps": 10, **plan}
    )


def until(run: Run, wanted: str | Callable[[Status], bool], seconds: float = 90.0) -> Status:
    """The status once it is in the state `wanted` (or fits it); fails when it ends otherwise or takes too long."""
    fits = (lambda status: status.state == wanted) if isinstance(wanted, str) else wanted
    deadline = time.monotonic() + seconds
    while True:
        status = read_status(run)
        if fits(status):
            return status
        assert time.monotonic() < deadline, (
            f"{run.id} is {status.state}, not {wanted}: {status.record}{logs(run)}"
        )
        assert not (status.over and isinstance(wanted, str)), f"{status.state}: {status.reason}{logs(run)}"
        time.sleep(0.02)


def over(run: Run, seconds: float = 120.0) -> Status:
    """The run's status once it is over and nothing of it lives."""
    until(run, lambda status: status.over, seconds)
    deadline = time.monotonic() + seconds
    while (is_held(run.lock) or is_held(run.alive)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return read_status(run)


def logs(run: Run) -> str:
    """What the processes of a run printed, for messages of failing tests."""
    texts = [
        path.read_text("utf-8", "replace") for path in (run.path / "supervisor.log", run.log) if path.exists()
    ]
    return "\n" + "\n".join(text[-3000:] for text in texts)
