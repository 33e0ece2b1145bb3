"""Faults of processes: what was killed, by whom, when, and what the run's state says afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.runs import control, events
from core.runs.states import read_status
from data.errors import FactoryError
from tests.faults.conftest import child, living, logs, over, start, supervisor, until


def test_a_run_goes_from_queued_to_succeeded_and_its_events_tell_it(home: Path) -> None:
    run = start(home, "train", 0.3)
    status = over(run)
    assert status.state == "succeeded", logs(run)
    assert status.record["exit"] == 0 and status.record["step"] == 3 and status.record["slots"] == ["cpu0"]
    told = [event.state for event in events.read_events(run.events)[0] if event.event == "state"]
    assert told == ["queued", "starting", "running", "succeeded"]
    assert (run.path / "supervisor.log").read_text("utf-8") == ""


def test_stop_saves_at_the_next_step_and_resume_goes_on_from_there(home: Path) -> None:
    run = start(home, "train", 30)
    until(run, "running")
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["exit"], status.record["forced"]) == ("stopped", 3, False), logs(run)
    assert status.record["checkpoint"].startswith("checkpoints/checkpoint-")
    again = control.resume(run)
    assert again.attempt == 2 and again.state in ("queued", "starting")
    assert json.loads(run.attempt_json.read_text("utf-8"))["resume"] == status.record["checkpoint"]
    until(run, "running")
    control.stop(run, now=True)
    assert over(run).state == "stopped"


def test_a_run_that_runs_tells_how_many_steps_it_has(home: Path) -> None:
    run = start(home, "train", 30)
    assert until(run, lambda status: status.record.get("total_steps") == 300).state in ("starting", "running")
    control.stop(run, now=True)
    over(run)


def test_a_killed_training_process_is_a_failed_run_with_the_reason(home: Path) -> None:
    run = start(home, "train", 30)
    os.kill(child(run), signal.SIGKILL)
    status = over(run)
    assert status.state == "failed" and status.record["signal"] == 9
    assert status.reason is not None and "killed by signal 9" in status.reason and "memory" in status.reason


def test_a_killed_supervisor_leaves_a_lost_run_whose_training_saved(home: Path) -> None:
    run = start(home, "train", 30)
    until(run, "running")
    os.kill(supervisor(run), signal.SIGKILL)
    status = over(run)
    assert status.state == "lost" and not status.orphans
    assert list(run.checkpoints.iterdir())
    assert control.resume(run).attempt == 2
    until(run, "running")
    control.stop(run)
    assert over(run).state == "stopped"


def test_orphans_that_ignore_the_end_are_seen_refused_and_can_be_ended(home: Path) -> None:
    run = start(home, "deaf", 60)
    until(run, "running")
    os.kill(supervisor(run), signal.SIGKILL)
    until(run, "lost")
    status = read_status(run)
    assert status.orphans and "processes of it live on" in (status.reason or "")
    with pytest.raises(FactoryError, match="live on without a supervisor"):
        control.resume(run)
    assert control.end_orphans(run, grace=0.2) == 1
    assert not over(run).orphans


def test_a_double_forked_child_does_not_outlive_its_run(home: Path) -> None:
    run = start(home, "double_fork")
    assert over(run).state == "succeeded"
    assert living(run) == []


def test_a_suspended_training_process_saves_and_stops(home: Path) -> None:
    run = start(home, "train", 30)
    until(run, "running")
    os.kill(child(run), signal.SIGSTOP)
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["exit"]) == ("stopped", 3)


def test_a_training_process_that_ignores_the_stop_is_killed_after_its_grace(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTORY_GRACE", "1")
    run = start(home, "deaf", 60)
    until(run, "running")
    control.stop(run)
    assert until(run, "stopping").record["grace"] == 1.0
    status = over(run)
    assert status.state == "stopped" and status.record["forced"] and status.record["signal"] == 9


def test_a_second_stop_kills(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTORY_GRACE", "600")  # so that nothing but the second stop can be what ends it
    run = start(home, "deaf", 600)
    until(run, "running")
    control.stop(run)
    until(run, "stopping")
    control.stop(run)
    assert over(run).record["forced"]


def test_a_stop_before_the_handler_is_set_ends_the_run_with_nothing_to_save(home: Path) -> None:
    run = start(home, "slow_start", 60)
    child(run)
    control.stop(run)
    status = over(run)
    assert status.state == "stopped" and status.record["exit"] == -15
    assert status.record["checkpoint"] is None


def test_a_save_that_fails_while_stopping_is_a_failure_and_not_a_stop(home: Path) -> None:
    run = start(home, "crash_while_stopping")
    until(run, "running")
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["exit"], status.reason) == ("failed", 1, "The disk is full.")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("silent", "without saying that it was done"),
        ("no_model", "its model folder is not whole"),
        ("crash", "signal 11 (Segmentation fault), a crash in native code"),
        ("no_such_behaviour", "it did not start: KeyError"),
    ],
)
def test_only_exit_0_with_a_done_event_and_a_whole_model_is_success(
    home: Path, behaviour: str, reason: str
) -> None:
    status = over(start(home, behaviour))
    assert status.state == "failed" and reason in (status.reason or ""), status.reason


def test_a_command_that_does_not_exist_fails_in_words(home: Path) -> None:
    run = control.submit(home, "", {"stage": "sft"}, {"argv": ["/no/such/python"]})
    assert "/no/such/python could not be started: No such file" in (over(run).reason or "")


def test_of_three_starts_of_one_run_one_wins(home: Path) -> None:
    run = start(home, "train", 30)
    until(run, "running")
    control.stop(run)
    over(run)
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                control.resume(run)
                os._exit(0)
            except FactoryError as error:
                os._exit(2 if error.findings[0].code == "run_active" else 1)
        pids.append(pid)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    assert codes == [0, 2, 2]
    control.stop(run, now=True)
    assert over(run).attempt == 2


def test_sigterm_to_the_supervisor_is_a_stop(home: Path) -> None:
    run = start(home, "train", 30)
    until(run, "running")
    os.kill(supervisor(run), signal.SIGTERM)
    assert over(run).state == "stopped"


@pytest.mark.root
def test_a_reused_process_number_harms_nobody(home: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to make a pid namespace")
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-m",
        "tests.faults.pid_reuse",
        str(home),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
