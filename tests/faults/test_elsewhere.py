"""Runs with something on other machines: what is left there is noted, ended with the run, and never forgotten."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from core.runs import control, elsewhere, events
from core.runs.folder import Run
from core.runs.queue import Queue
from core.runs.states import read_status
from data.errors import FactoryError
from tests.faults.conftest import JOB, over, start, until

THERE: dict[str, Any] = {**JOB, "launcher": {"name": "slurm"}}
ENDS = "import sys, pathlib; from core.runs import elsewhere, folder; "
WELL = [sys.executable, "-c", ENDS + "elsewhere.over(folder.Run(pathlib.Path(sys.argv[1])), 'CANCELLED')"]
BADLY = [sys.executable, "-c", "print('Slurm job 12 may still be there'); raise SystemExit(1)"]


def warnings(run: Run) -> list[str]:
    told = events.read_events(run.events)[0]
    return [one.message for one in told if one.event == "warning" and one.code == "left_elsewhere"]


def test_a_run_that_computes_elsewhere_waits_for_no_device_here(home):
    runs = [
        start(home, "train", 60.0, job=THERE),
        start(home, "train", 60.0, job=THERE),
        start(home, "train", 60.0),
    ]
    for run in runs:
        until(run, "running")
    assert [slot for slot in Queue().holders()] == ["cpu0"]
    for run in runs:
        control.stop(run, now=True)
        over(run)


def test_what_is_left_elsewhere_is_ended_with_the_run(home):
    run = start(home, "train", 60.0, job=THERE, ending=WELL)
    until(run, "running")
    elsewhere.note(run, "Slurm job 12", job="12")
    control.stop(run, now=True)
    assert over(run).state == "stopped"
    assert elsewhere.left(run) is None and elsewhere.noted(run)["ended"] == "CANCELLED"
    assert warnings(run) == []


def test_what_cannot_be_ended_is_told_and_holds_the_next_attempt_back(home):
    run = start(home, "train", 60.0, job=THERE, ending=BADLY)
    until(run, "running")
    elsewhere.note(run, "Slurm job 12", job="12")
    control.stop(run, now=True)
    assert over(run).state == "stopped"
    assert warnings(run) == ["Slurm job 12 may still be there"]
    with pytest.raises(FactoryError, match="cannot go on yet: Slurm job 12 may still be there"):
        control.resume(run)


def test_a_lost_run_with_something_elsewhere_has_orphans_that_a_stop_ends(home):
    run = start(home, "train", 1.0, job=THERE, ending=WELL)
    over(run)
    elsewhere.note(run, "Slurm job 12", job="12")
    (run.state_json).write_text('{"state": "running", "attempt": 1}')
    status = read_status(run)
    assert status.state == "lost" and status.orphans
    with pytest.raises(FactoryError, match="end them with `factory stop"):
        control.resume(run)
    assert control.end_orphans(run, 1.0) == 1
    assert not read_status(run).orphans
