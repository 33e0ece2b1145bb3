"""Launcher slurm on a real Slurm of two nodes on this machine: every way in which a job begins, waits and ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.job.checks import check, refuse_errors
from core.job.machine import this_machine
from core.job.plan import make_plan
from core.job.spec import JobSpec
from core.launchers import slurm
from core.runs import control, elsewhere, events
from core.runs.folder import Run
from core.runs.journal import read_records
from core.runs.states import Status, read_status
from tests.cpu.conftest import chats, write_rows
from tests.engines.slurm_cluster import INSTALL, Cluster, cluster, missing
from tests.faults.conftest import child, logs, over, supervisor, until

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(missing()), reason=INSTALL),
]


TOLD = ("ready", "start", "metric", "done")
"""What the stand-in tells."""


@pytest.fixture(scope="module")
def slurmd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of this file."""
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(autouse=True)
def there(slurmd: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Slurm's commands find the cluster; afterwards none of its jobs is left."""
    for name, value in slurmd.environment.items():
        monkeypatch.setenv(name, value)
    yield slurmd
    assert slurmd.ask("squeue", "-h") == ""


def submit(home: Path, *behaviour: object, nodes: int = 1, **launcher: Any) -> Run:
    """A job of Slurm's whose training is the stand-in with this behaviour."""
    job = JobSpec.model_validate(
        {
            "model": "m",
            "data": "d.jsonl",
            "stage": "sft",
            "hardware": {"nodes": nodes},
            "launcher": {"name": "slurm", "gpus": False, **launcher},
        }
    ).model_dump(mode="json")
    kind = "tests.faults.stand_in" if nodes == 1 else "tests.faults.part"
    training = [sys.executable, "-m", kind, *map(str, behaviour), *(["--standalone"] if nodes > 1 else [])]
    plan = {
        "argv": slurm.command(training),
        "training": training,
        "ending": slurm.ending(),
        "environment": [],
    }
    return control.submit(home, "stage: sft\n", job, {**plan, "steps": 10})


def told(run: Run, words: str) -> Callable[[Status], bool]:
    """Whether the run has told something with these words; fails when it ends without."""

    def fits(status: Status) -> bool:
        found = any(words in json.dumps(one.model_dump()) for one in events.read_events(run.events)[0])
        assert found or not status.over, f"{status.state}: {status.reason}{logs(run)}"
        return found

    return fits


def read(run: Run) -> list[Any]:
    return events.read_events(run.events)[0]


def assert_gone(run: Run, there: Cluster) -> None:
    """The run is over here and at Slurm."""
    assert elsewhere.left(run) is None
    assert there.ask("squeue", "-h") == ""


def test_a_job_on_two_nodes_trains_to_its_end(home, there):
    run = submit(home, "train", 1.0, nodes=2, partition="cpu")
    status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    texts = [one.text for one in events.read_events(run.events)[0] if one.event == "phase"]
    assert any(f"{verb} on n[1-2]" in text for text in texts for verb in ("runs", "ran")), texts
    assert status.record["slots"] == []
    assert "#SBATCH --partition=cpu" in (run.path / "slurm.sh").read_text()
    copied = [record for record in read_records(run.events)[0] if record["event"] in TOLD]
    source = f"slurm-{elsewhere.noted(run)['job']}-0"
    assert {str(record["carried"][0]) for record in copied} == {source}
    assert len(copied) == len(read_records(run.path / f"events.{source}.jsonl")[0]) == 13
    assert_gone(run, there)


@pytest.fixture
def real(tiny: str, tmp_path: Path) -> dict[str, Any]:
    """A short job of a tiny model, on both nodes."""
    return {
        "model": tiny,
        "data": write_rows(tmp_path / "chats.jsonl", chats(24)),
        "stage": "sft",
        "method": "full",
        "train": {"max_steps": 4, "batch_size": 2, "logging_steps": 1, "learning_rate": 1e-3},
        "evaluate": {"prompts": ["Hi?"], "max_new_tokens": 2},
        "hardware": {"nodes": 2},
        "launcher": {"name": "slurm", "gpus": False, "cpus_per_task": 1, "time": "30"},
    }


def train(home: Path, job: dict[str, Any]) -> Run:
    """Hand a job in as `factory train` does."""
    spec, machine = JobSpec.model_validate(job), this_machine()
    refuse_errors(check(spec, machine, home))
    plan = make_plan(spec, home, machine).model_dump(mode="json")
    return control.submit(home, json.dumps(job), plan["job"], plan)


def losses(run: Run) -> list[float]:
    told = events.read_events(run.events)[0]
    return [one.values["loss"] for one in told if one.event == "metric" and "loss" in one.values]


def test_a_tiny_model_is_trained_by_two_nodes_as_by_two_processes(home, there, real):
    run = train(home, real)
    status = over(run, 240.0)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    same = train(home, {**real, "hardware": {"devices": 2}, "launcher": "local"})
    assert over(same, 240.0).state == "succeeded", logs(same)
    assert len(losses(run)) == 4 and losses(run) == pytest.approx(losses(same), rel=1e-5)
    assert_gone(run, there)


def test_a_real_training_is_stopped_and_goes_on_as_another_job_of_slurms(home, there, real):
    run = train(home, {**real, "train": {**real["train"], "max_steps": 5000}})
    until(run, told(run, '"metric"'), 240.0)
    control.stop(run)
    status = over(run, 120.0)
    assert (status.state, bool(status.record["checkpoint"])) == ("stopped", True), (
        f"{status.record}{logs(run)}"
    )
    assert_gone(run, there)
    step = int(status.record["step"])
    control.resume(run, [f"train.max_steps={step + 2}", "launcher.time=60"])
    status = over(run, 240.0)
    assert (status.state, status.attempt) == ("succeeded", 2), f"{status.reason}{logs(run)}"
    assert "#SBATCH --time=60" in (run.path / "slurm.sh").read_text()
    assert_gone(run, there)


def test_a_stop_in_the_middle_saves_and_a_resume_is_a_new_job_of_slurms(home, there):
    run = submit(home, "train", 60.0, nodes=2)
    until(run, told(run, '"metric"'))
    first = elsewhere.noted(run)["job"]
    control.stop(run)
    status = over(run)
    assert (status.state, bool(status.record["checkpoint"])) == ("stopped", True), (
        f"{status.record}{logs(run)}"
    )
    assert_gone(run, there)
    assert control.resume(run).attempt == 2
    until(run, told(run, f"Slurm job {int(first) + 1} runs on"))
    control.stop(run, now=True)
    status = over(run)
    assert status.state == "stopped" and "at once" in str(status.reason)
    assert_gone(run, there)


def test_a_job_cancelled_from_outside_saves_and_says_so(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    there.ask("scancel", elsewhere.noted(run)["job"])
    status = over(run)
    assert status.state == "stopped" and "was cancelled from outside (scancel)" in str(status.reason), logs(
        run
    )
    assert status.record["checkpoint"]


def test_a_partition_that_is_not_there_is_refused_with_sbatchs_words(home, there):
    run = submit(home, "train", 1.0, partition="nope")
    status = over(run)
    assert status.state == "failed" and status.fault == "slurm_refused"
    assert "Slurm did not take the job: invalid partition specified: nope" in str(status.reason)
    assert elsewhere.noted(run) == {}


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ({"partition": "closed"}, "waits in partition closed (PartitionDown: the partition is down)"),
        ({"constraint": "gold"}, "Invalid feature specification"),
        ({"memory": "900G"}, "Memory specification can not be satisfied"),
        ({"gpus": True}, "Invalid generic resource (gres)"),
        (
            {"partition": "short", "time": "1-0"},
            "PartitionTimeLimit: it asks for more time than the partition gives",
        ),
    ],
)
def test_a_job_that_cannot_run_says_why_and_can_be_cancelled(home, there, launcher, words):
    run = submit(home, "train", 60.0, **launcher)
    status = until(run, lambda status: status.over or told(run, words)(status))
    if not status.over:
        assert status.state == "starting"
        control.stop(run)
        status = over(run)
        assert status.state == "stopped"
    else:
        assert words in str(status.reason)
    assert_gone(run, there)


def test_a_job_waits_for_its_nodes_and_begins_when_they_are_free(home, there):
    first = submit(home, "train", 60.0, nodes=2)
    until(first, told(first, '"metric"'))
    second = submit(home, "train", 1.0, nodes=2)
    until(second, told(second, "(Resources: it waits for nodes to become free)"))
    control.stop(first)
    assert over(first).state == "stopped"
    assert over(second).state == "succeeded", logs(second)


def test_a_second_stop_cancels_the_job(home, there):
    run = submit(home, "deaf", 600.0)
    until(run, "running")
    control.stop(run)
    until(run, "stopping")
    control.stop(run)
    assert over(run).state == "stopped"
    assert_gone(run, there)


def test_a_training_that_fails_ends_the_job_with_its_last_words(home, there):
    run = submit(home, "crash")
    status = over(run)
    assert status.state == "failed", status.record
    assert_gone(run, there)


def test_the_lines_of_a_site_reach_the_training_on_every_node(home, there):
    run = submit(home, "site", 1.0, nodes=2, setup=["export SITE='a \"b\" $((6 * 7))'"], modules=[])
    status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    assert 'SITE is a "b" $((6 * 7))' in [one.text for one in read(run) if one.event == "phase"]
    assert_gone(run, there)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("(exit 3)", "launcher.setup ended with exit code 3: ( exit 3 )"),
        ("source nothing-here.sh", "nothing-here.sh: No such file or directory"),
        ("exit 3", "ended with exit code 1"),  # it ends the script, and nothing is left to tell of it
    ],
)
def test_a_line_of_the_site_that_fails_ends_the_run_with_that_line(home, there, line, words):
    run = submit(home, "train", 60.0, setup=[line])
    status = over(run)
    assert status.state == "failed" and words in str(status.reason), status.record
    assert_gone(run, there)


@pytest.mark.slow
def test_a_time_limit_ends_the_run_with_that_reason(home, there):
    run = submit(home, "deaf", 600.0, time="1")
    status = over(run, 180.0)
    assert status.state == "failed" and status.fault == "slurm_timeout", logs(run)
    assert "reached its time limit; raise launcher.time" in str(status.reason)
    assert_gone(run, there)


def test_a_killed_follower_leaves_no_job_behind(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    os.kill(child(run), signal.SIGKILL)
    status = over(run)
    assert status.state == "failed" and "killed by signal 9" in str(status.reason)
    assert_gone(run, there)


def test_a_killed_supervisor_stops_the_job_and_the_run_can_go_on(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    os.kill(supervisor(run), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while there.ask("squeue", "-h").strip() and time.monotonic() < deadline:
        time.sleep(0.2)
    status = over(run)
    assert status.state == "lost"
    assert any((run.checkpoints).iterdir())


def test_a_job_that_outlives_supervisor_and_follower_is_seen_and_ended(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    follower = child(run)
    os.kill(supervisor(run), signal.SIGSTOP)
    os.kill(follower, signal.SIGKILL)
    os.kill(supervisor(run), signal.SIGKILL)
    until(run, lambda status: status.state == "lost")
    status = read_status(run)
    assert status.orphans and elsewhere.left(run) == f"Slurm job {elsewhere.noted(run)['job']}"
    with pytest.raises(Exception, match="end them with"):
        control.resume(run)
    assert control.end_orphans(run, 5.0) >= 1
    assert not read_status(run).orphans
    assert_gone(run, there)


@pytest.mark.slow
def test_a_silent_slurm_is_told_and_nothing_hangs(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    there.daemons["slurmctld"].send_signal(signal.SIGSTOP)
    try:
        until(run, told(run, "Slurm does not answer"), 120.0)
    finally:
        there.daemons["slurmctld"].send_signal(signal.SIGCONT)
    until(run, told(run, "Slurm answers again"), 60.0)
    control.stop(run)
    assert over(run, 90.0).state == "stopped"
    assert_gone(run, there)


def test_a_stop_works_while_slurm_is_silent(home, there):
    run = submit(home, "train", 60.0)
    until(run, told(run, '"metric"'))
    there.end("slurmctld")
    try:
        control.stop(run)
        until(run, lambda status: any(run.checkpoints.glob("*/COMPLETE.json")), 60.0)
    finally:
        there.start_controller()
    assert over(run, 120.0).state == "stopped"
    assert_gone(run, there)
