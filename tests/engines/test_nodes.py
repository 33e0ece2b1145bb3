"""Launcher torchrun for real: a tiny model trained by two machines (network namespaces) over gloo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.runs import control, events
from core.runs.folder import Run, list_runs
from core.runs.process import holders_of
from core.runs.states import read_status
from tests.cpu.conftest import chats, write_rows
from tests.engines.two_machines import ADDRESSES, INSTALL, Machine, can, two_machines
from tests.faults.conftest import logs, over, until

pytestmark = [pytest.mark.engines, pytest.mark.skipif(not can(), reason=INSTALL)]


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    with two_machines() as pair:
        yield pair


@pytest.fixture
def job(tiny: str, tmp_path: Path) -> dict[str, Any]:
    """A short job of both machines."""
    return {
        "model": tiny,
        "data": write_rows(tmp_path / "chats.jsonl", chats(24)),
        "stage": "sft",
        "method": "full",
        "train": {"max_steps": 4, "batch_size": 2, "logging_steps": 1, "learning_rate": 1e-3},
        "evaluate": {"prompts": ["Hi?"], "max_new_tokens": 2},
        "hardware": {"nodes": 2},
        "launcher": {"name": "torchrun", "endpoint": f"{ADDRESSES[0]}:29511", "timeout": 120},
    }


class Pair:
    """`factory` on both machines; what was started is ended afterwards."""

    def __init__(self, machines: tuple[Machine, Machine], home: Path) -> None:
        self.machines, self.home = machines, home
        self.started: list[subprocess.Popen[str]] = []

    def factory(self, place: int, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "core.cli", "--home", str(self.home), *words]
        slots = f"{os.environ['FACTORY_SLOTS']}-{place}"
        env = {**os.environ, "FACTORY_SLOTS": slots, "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(
            self.machines[place].words(*argv),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(started)
        return started

    def train(self, job: dict[str, Any]) -> Run:
        """Start the run on the first machine."""
        path = self.home.parent / "job.json"
        path.write_text(json.dumps(job))
        started = self.factory(0, "train", "--detach", str(path))
        text, _ = started.communicate(timeout=120)
        assert started.returncode == 0, text
        (run,) = list_runs(self.home)
        return run


@pytest.fixture
def pair(machines: tuple[Machine, Machine], home: Path) -> Iterator[Pair]:
    made = Pair(machines, home)
    yield made
    for one in made.started:
        one.kill()
        one.communicate()


def said(run: Run) -> list[Any]:
    return events.read_events(run.events)[0]


def losses(run: Run) -> list[float]:
    return [one.values["loss"] for one in said(run) if one.event == "metric" and "loss" in one.values]


def assert_clean(run: Run) -> None:
    """No process of the run is left on either machine."""
    places = [run.lock, run.alive, *(run.path / "nodes").glob("*.alive")]
    assert [holders_of(place) for place in places] == [[]] * len(places)


def has(run: Run, kind: str) -> Callable[[Any], bool]:
    return lambda status: any(one.event == kind for one in said(run)) or status.over


def test_two_machines_learn_what_two_processes_of_one_learn(pair, job, tmp_path, monkeypatch):
    run = pair.train(job)
    other = pair.factory(1, "node", run.id, "--rank", "1")
    status = over(run, 240.0)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    text, _ = other.communicate(timeout=60)
    assert other.returncode == 0, text
    assert sum(one.event == "done" for one in said(run)) == 1
    assert len(losses(run)) == 4
    assert_clean(run)

    alone = {**job, "hardware": {"devices": 2}, "launcher": "local"}
    single = Pair(pair.machines, tmp_path / "single" / "home")
    single.home.parent.mkdir()
    same = single.train(alone)
    status = over(same, 240.0)
    assert status.state == "succeeded", f"{status.reason}{logs(same)}"
    assert losses(run) == pytest.approx(losses(same), rel=1e-5)


def test_a_stop_saves_once_and_a_resume_goes_on_with_both(pair, job):
    run = pair.train({**job, "train": {**job["train"], "max_steps": 5000}})
    other = pair.factory(1, "node", run.id, "--rank", "1")
    until(run, has(run, "metric"), 240.0)
    control.stop(run)
    status = over(run, 120.0)
    assert status.state == "stopped" and status.record["checkpoint"], f"{status.reason}{logs(run)}"
    text, _ = other.communicate(timeout=60)
    assert other.returncode == 3, text
    assert_clean(run)

    step = int(status.record["step"])
    resumed = pair.factory(0, "resume", "--detach", run.id, "-o", f"train.max_steps={step + 2}")
    text, _ = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, text
    other = pair.factory(1, "node", run.id, "--rank", "1")
    status = over(run, 240.0)
    assert (status.state, status.attempt) == ("succeeded", 2), f"{status.reason}{logs(run)}"
    other.communicate(timeout=60)
    assert other.returncode == 0
    assert_clean(run)


def test_a_machine_that_dies_ends_the_run_with_that_reason(pair, job):
    run = pair.train({**job, "train": {**job["train"], "max_steps": 5000}})
    other = pair.factory(1, "node", run.id, "--rank", "1")
    until(run, has(run, "metric"), 240.0)
    for pid in {other.pid, *holders_of(run.path / "nodes" / "1.alive")}:
        os.kill(pid, signal.SIGKILL)
    other.wait()
    status = over(run, 60.0)
    assert status.state == "failed" and status.fault in ("node_lost", "node_failed"), (
        f"{status.record}{logs(run)}"
    )
    assert "Node 1" in str(status.reason)
    assert_clean(run)


def test_a_rank_that_dies_on_the_other_machine_is_told_with_its_reason(pair, job):
    run = pair.train({**job, "train": {**job["train"], "max_steps": 5000}})
    other = pair.factory(1, "node", run.id, "--rank", "1")
    until(run, has(run, "metric"), 240.0)
    rank = max(holders_of(run.path / "nodes" / "1.alive"))
    os.kill(rank, signal.SIGKILL)
    status = over(run, 60.0)
    assert (status.state, status.fault) == ("failed", "node_failed"), f"{status.record}{logs(run)}"
    assert "failed: rank 1 of the" in str(status.reason) and "killed by signal 9" in str(status.reason)
    assert other.wait(60) != 0
    assert_clean(run)


@pytest.mark.slow
def test_a_pulled_cable_ends_both_machines(pair, job):
    run = pair.train({**job, "train": {**job["train"], "max_steps": 5000}})
    other = pair.factory(1, "node", run.id, "--rank", "1")
    until(run, has(run, "metric"), 240.0)
    began = time.monotonic()
    pair.machines[1].unplug()
    try:
        status = over(run, 120.0)
        took = time.monotonic() - began
        assert status.state == "failed" and "no sign of life" in str(status.reason), (
            f"{status.record}{logs(run)}"
        )
        text, _ = other.communicate(timeout=120)
        assert other.returncode != 0 and "node 0 is lost" in text
        assert_clean(run)
        assert took < 60
    finally:
        subprocess.run(pair.machines[1].words("ip", "link", "set", "cable", "up"), check=True)


def test_the_run_is_followed_as_any_other(pair, job):
    run = pair.train(job)
    other = pair.factory(1, "node", run.id, "--rank", "1")
    follower = pair.factory(0, "logs", "-f", run.id)
    text, _ = follower.communicate(timeout=240)
    other.communicate(timeout=60)
    assert read_status(run).state == "succeeded", logs(run)
    assert f"node {run.id} --rank 1" in text and "loss" in text, text
