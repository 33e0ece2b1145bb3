"""A run on two nodes when something goes wrong: it ends in a state with its reason, and nothing of it is left anywhere.

Both nodes are this machine, each with a queue of its own; what they train is a stand-in that meets as torch does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.job.machine import versions
from core.job.spec import JobSpec
from core.launchers import torchrun
from core.nodes.meeting import read_note
from core.runs import control, events
from core.runs.folder import Run
from core.runs.process import holders_of
from core.runs.states import Status, read_status
from tests.faults.conftest import logs, over, supervisor, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def node(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `factory node` as on another machine: its own queue of devices. All are ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(run: Run, rank: int = 1, **environment: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "core.cli", "--home", str(home), "node", run.id, "--rank", str(rank)]
        env = {**os.environ, "FACTORY_SLOTS": f"{os.environ['FACTORY_SLOTS']}-{rank}", **environment}
        started.append(
            subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def submit(home: Path, *behaviour: object, launcher: dict[str, Any] | None = None, **plan: Any) -> Run:
    """A run on two nodes at a free port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        endpoint = f"127.0.0.1:{one.getsockname()[1]}"
    job = JobSpec.model_validate(
        {
            "model": "m",
            "data": "d.jsonl",
            "stage": "sft",
            "hardware": {"nodes": 2},
            "launcher": {"name": "torchrun", "endpoint": endpoint, "timeout": 60, **(launcher or {})},
        }
    ).model_dump(mode="json")
    training = [sys.executable, "-m", "tests.faults.part", *map(str, behaviour), "--standalone"]
    values = {"training": training, "environment": [], "steps": 10, "versions": versions(), **plan}
    return control.submit(home, "stage: sft\n", job, {"argv": torchrun.command(training), **values})


def waiting(run: Run) -> None:
    """Wait until node 0 waits for the others."""
    deadline = time.monotonic() + 120
    while read_note(run) is None:
        assert time.monotonic() < deadline and not read_status(run).over, logs(run)
        time.sleep(0.05)


def ended(node: subprocess.Popen[str], seconds: float = 120.0) -> tuple[int, str]:
    """Exit code and words of a node."""
    text, _ = node.communicate(timeout=seconds)
    return node.returncode, text


def assert_clean(run: Run) -> None:
    """No process of the run is left on either node."""
    over(run)
    assert holders_of(run.lock) == holders_of(run.alive) == []
    assert [holders_of(path) for path in (run.path / "nodes").glob("*.alive")] in ([], [[]])


def errors(run: Run) -> list[str]:
    return [one.message for one in events.read_events(run.events)[0] if one.event == "error"]


def test_two_nodes_train_together_and_follow_one_state(home, node):
    run = submit(home, "train", 1.0)
    waiting(run)
    assert (run.path / "nodes.json").stat().st_mode & 0o077 == 0
    other = node(run)
    status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    code, words = ended(other)
    assert (code, f"Node 1 of run {run.id}: ended" in words) == (0, True), words
    texts = [one.text for one in events.read_events(run.events)[0] if one.event == "phase"]
    assert any(f"node {run.id} --rank 1" in text for text in texts)
    assert "interface lo\n" in (run.path / "nodes" / "1.txt").read_text()
    assert_clean(run)


def test_a_stop_saves_and_ends_both_nodes(home, node):
    run = submit(home, "train", 60.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["checkpoint"] is not None) == ("stopped", True), status.reason
    assert ended(other)[0] == 3
    assert_clean(run)


def test_a_node_that_is_asked_in_its_last_moments_has_stopped_and_not_failed(home, node):
    run = submit(home, "late", 600.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["checkpoint"] is not None) == ("stopped", True), status.reason
    assert ended(other)[0] == 3
    assert_clean(run)


def test_a_second_stop_ends_both_nodes_at_once(home, node):
    run = submit(home, "deaf", 600.0)
    waiting(run)
    other = node(run)
    until(run, "running")
    control.stop(run)
    control.stop(run)
    assert over(run).state == "stopped"
    code, words = ended(other)
    assert code != 0 and "node 0 is lost" in words, words
    assert_clean(run)


def test_a_stop_while_node_0_waits_needs_no_other_node(home):
    run = submit(home, "train", 60.0)
    waiting(run)
    control.stop(run)
    assert over(run).state == "stopped"
    assert_clean(run)


def test_a_node_that_does_not_come_ends_the_run_with_that_reason(home):
    run = submit(home, "train", 60.0, launcher={"timeout": 10})
    status = over(run)
    assert status.state == "failed" and status.fault == "node_missing"
    assert "Node 1 did not come to 127.0.0.1:" in str(status.reason) and "within 10 s" in str(status.reason)
    assert_clean(run)


def test_a_node_with_other_versions_is_refused_on_both_sides(home, node):
    run = submit(home, "train", 60.0, versions={**versions(), "torch": "1.0"})
    waiting(run)
    other = node(run)
    status = over(run)
    assert read_note(run) is None
    assert status.state == "failed" and status.fault == "node_differs"
    assert f"has torch {versions()['torch']} instead of 1.0" in str(status.reason)
    code, words = ended(other)
    assert code == 2 and "Node 0 refused this node: it has torch" in words, words
    assert_clean(run)


def test_a_node_that_is_killed_ends_the_run_with_that_reason(home, node):
    run = submit(home, "train", 60.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    other.kill()
    status = over(run)
    assert (status.state, status.fault) == ("failed", "node_lost"), logs(run)
    assert f"Node 1 ({socket.gethostname()}) was lost: the connection was closed" in str(status.reason)
    ended(other)
    assert_clean(run)


@pytest.mark.slow
def test_a_node_that_falls_silent_ends_the_run_with_that_reason(home, node):
    run = submit(home, "train", 90.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    other.send_signal(signal.SIGSTOP)  # as a pulled cable: no farewell
    status = over(run)
    assert (status.state, status.fault) == ("failed", "node_lost"), logs(run)
    assert "no sign of life for 20 s" in str(status.reason)
    other.send_signal(signal.SIGCONT)
    assert ended(other)[0] != 0
    assert_clean(run)


def test_a_node_whose_training_fails_says_why(home, node):
    run = submit(home, "train", 60.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    for one in holders_of(run.path / "nodes" / "1.alive"):
        if one != other.pid:
            os.kill(one, signal.SIGKILL)
    status = over(run)
    assert (status.state, status.fault) == ("failed", "node_failed"), logs(run)
    assert f"Node 1 ({socket.gethostname()}) failed" in str(status.reason)
    assert ended(other)[0] == 128 + signal.SIGKILL
    assert_clean(run)


def test_a_killed_supervisor_leaves_no_node_behind(home, node):
    run = submit(home, "train", 60.0)
    waiting(run)
    other = node(run)
    until(run, lambda status: has(run, "metric"))
    os.kill(supervisor(run), signal.SIGKILL)
    code, words = ended(other)
    assert code == 3, words  # node 0 was told to stop by the kernel, and passed it on
    assert read_status(run).state == "lost"
    assert_clean(run)


@pytest.mark.slow
def test_a_busy_node_says_so(home, node):
    first, second = submit(home, "train", 60.0), submit(home, "train", 60.0, launcher={"timeout": 10})
    waiting(first)
    other = node(first)
    until(first, lambda status: has(first, "metric"))
    late = node(second)
    code, words = ended(late)
    assert code == 2 and f"devices are in use by {first.id}" in words, words
    control.stop(second)
    control.stop(first, now=True)
    over(second)
    over(first)
    ended(other)


def test_a_stranger_without_the_key_is_not_let_in(home, node):
    run = submit(home, "train", 1.0)
    waiting(run)
    note = read_note(run)
    assert note is not None
    host, _, port = note["endpoint"].rpartition(":")
    with contextlib.ExitStack() as open_lines:
        for words in (b'{"key": "wrong", "rank": 1}\n', b"GET / HTTP/1.1\r\n\r\n", b"\0" * 70_000, b"[1]\n"):
            line = open_lines.enter_context(socket.create_connection((host, int(port))))
            line.sendall(words)
        other = node(run)
        status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    assert ended(other)[0] == 0
    assert_clean(run)


def test_a_node_of_a_run_that_is_over_does_not_wait(home, node):
    run = submit(home, "train", 60.0)
    waiting(run)
    control.stop(run)
    over(run)
    code, words = ended(node(run))
    assert code == 2 and f"Run {run.id} has ended (stopped); start it again" in words, words


def test_an_endpoint_that_is_not_of_this_machine_is_refused(home):
    run = submit(home, "train", 1.0, launcher={"endpoint": "192.0.2.1:29500"})
    status = over(run)
    assert status.state == "failed" and status.fault == "endpoint_unusable"
    assert "The endpoint 192.0.2.1:29500 cannot be opened on this machine" in str(status.reason)
    assert_clean(run)


def test_a_host_that_ssh_does_not_reach_ends_the_run_with_sshs_words(home):
    run = submit(home, "train", 1.0, launcher={"hosts": ["no-such-host.invalid"]})
    status = over(run)
    assert status.state == "failed" and status.fault == "node_missing", logs(run)
    assert "Node 1 (no-such-host.invalid) did not come:" in str(status.reason)
    assert_clean(run)


def test_a_folder_that_the_node_does_not_see_is_told(home, tmp_path):
    run = submit(home, "train", 1.0)
    words = [
        sys.executable,
        "-m",
        "core.cli",
        "--home",
        str(tmp_path / "other"),
        "node",
        run.id,
        "--rank",
        "1",
    ]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 2 and run.id in told.stderr
    control.stop(run, now=True)
    over(run)


def has(run: Run, kind: str) -> bool:
    """Whether the run has told such an event."""
    status: Status = read_status(run)
    assert not status.over, f"{status.state}: {status.reason}{logs(run)}"
    return any(one.event == kind for one in events.read_events(run.events)[0])
