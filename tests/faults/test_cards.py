"""Error cards of runs that ended without a word: killed from outside, lost, stuck in the queue; and where they show."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from core.cli import main
from core.runs.cards import card_of
from core.runs.states import read_status
from tests.faults.conftest import child, over, start, supervisor, until


def test_a_killed_run_shows_its_card_in_the_list_and_behind_its_output(home: Path, capsys) -> None:
    run = start(home, "train", 20)
    until(run, "running")
    os.kill(child(run), signal.SIGKILL)
    status = over(run)
    assert (status.state, status.fault) == ("failed", "killed")
    assert main(["--home", str(home), "runs"]) == 0
    listed = capsys.readouterr().out
    assert f"{run.id}  killed" in listed and f"factory train {run.job_json}" in listed
    main(["--home", str(home), "logs", run.id])
    assert "ended from outside" in capsys.readouterr().err


def test_a_lost_run_and_one_that_waits_long_have_cards(home: Path) -> None:
    first = start(home, "train", 20)
    until(first, "running")
    second = start(home, "train", 1)
    until(second, "queued")
    assert card_of(read_status(second)) is None
    stuck = card_of(read_status(second), waited=3600.0)
    assert stuck is not None and (stuck.code, stuck.command) == (
        "queue_stuck",
        f"factory queue front {second.id}",
    )
    os.kill(supervisor(second), signal.SIGKILL)
    os.kill(supervisor(first), signal.SIGKILL)
    until(first, "lost")
    lost = card_of(read_status(first))
    assert lost is not None and lost.code == "killed"
    over(first)
    over(second)
