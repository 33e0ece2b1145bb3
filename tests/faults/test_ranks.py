"""Several processes of one run: one that fails ends the run with its reason, and no end of any leaves another."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints, control
from core.runs.events import read_events
from core.runs.folder import Run
from core.runs.process import descendants, holders_of
from core.runs.storage import read_json
from tests.cpu.conftest import chats, write_rows
from tests.faults.conftest import JOB, child, logs, over, supervisor, until
from tests.faults.test_training import at_step, submit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def started(home: Path, behaviour: str) -> Run:
    """A run of two stand-ins under core.training.ranks."""
    words = ["--standalone", "--nproc-per-node", "2", "-m", "tests.faults.stand_in_rank", behaviour]
    argv = [sys.executable, "-m", "core.training.ranks", *words]
    return control.submit(home, "stage: sft\n", JOB, {"argv": argv, "environment": [], "steps": 10})


def errors(run: Run) -> list[Any]:
    """The events that say what ended the run."""
    return [event for event in read_events(run.events)[0] if event.event == "error"]


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ("killed", "rank_died", "rank 1 of the 2 processes here was killed by signal 9"),
        ("exits", "rank_died", "rank 1 of the 2 processes here ended with exit code 7"),
        ("refuses", "data_missing", "rank 1: The rows are gone; put them back."),
    ],
)
def test_one_that_fails_ends_the_run_with_its_rank_and_reason(
    home: Path, behaviour: str, code: str, words: str
) -> None:
    run = started(home, behaviour)  # the other would take another 500 steps
    status = over(run)
    assert status.state == "failed" and words in (status.reason or ""), logs(run)
    (error,) = errors(run)
    assert (error.code, words in error.message) == (code, True)
    assert status.record["fault"] == code


def test_what_the_others_say_comes_with_their_number_and_only_one_is_told_to_be_ready(home: Path) -> None:
    run = started(home, "train")
    status = over(run)
    assert status.state == "succeeded", logs(run)
    lines = run.log.read_text("utf-8").splitlines()
    assert "said by 0" in lines and "[rank 1] said by 1" in lines
    assert [event.event for event in read_events(run.events)[0]].count("ready") == 1
    assert not list(run.path.glob("ranks/*/logs-*"))


@pytest.mark.parametrize("how", ["asked", "now", "launcher killed", "supervisor killed", "both killed"])
def test_no_stop_and_no_kill_leaves_a_process(home: Path, how: str) -> None:
    run = started(home, "deaf" if how == "now" else "until stopped")
    at_step(run, 2)
    launcher, keeper = child(run), supervisor(run)
    ranks = descendants(launcher)
    assert len(ranks) == 2 and set(ranks) <= set(holders_of(run.alive)), (
        "each holds what says that the run lives"
    )
    if how in ("asked", "now"):
        control.stop(run, now=how == "now")
    for pid, named in ((launcher, "launcher"), (keeper, "supervisor")):
        if named in how or how == "both killed":
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while holders_of(run.alive) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert holders_of(run.alive) == [], logs(run)
    if how in ("asked", "now"):
        status = over(run)
        assert status.state == "stopped", (status.reason, logs(run))
    if how not in ("now", "both killed", "launcher killed"):
        assert len(checkpoints.complete(run)) == 1, "they saved first"


@pytest.fixture
def two(tiny: str, tmp_path: Path) -> dict[str, Any]:
    """A real job of many small steps in two processes."""
    return {
        "model": tiny,
        "data": write_rows(tmp_path / "chats.jsonl", chats(24)),
        "stage": "sft",
        "method": "full",
        "hardware": {"devices": 2},
        "train": {"max_steps": 4000, "batch_size": 2, "save_steps": 5, "logging_steps": 1},
        "evaluate": {"prompts": ["Hi?"], "max_new_tokens": 2},
    }


def test_a_real_run_of_two_loses_one_and_goes_on_from_its_checkpoint(home: Path, two: dict[str, Any]) -> None:
    run = submit(home, two, environment=("OMP_NUM_THREADS",))
    until(run, lambda status: bool(checkpoints.complete(run)), 240)
    heard = listening([child(run), *descendants(child(run))])
    assert len(heard) >= 3 and all(address.is_loopback for address in heard), "the store and each one's gloo"
    victim = next(pid for pid in descendants(child(run)) if environment_of(pid).get("RANK") == "1")
    os.kill(victim, signal.SIGKILL)
    status = over(run)  # of 4000 steps: a peer that is gone is noticed
    assert status.state == "failed" and "rank 1 of the 2" in (status.reason or ""), logs(run)
    saved = checkpoints.newest_complete(run)
    assert saved is not None
    control.resume(run)
    begin, reached = checkpoints.step_of(saved) or 0, max(steps_of(run))
    at_step(run, reached + 1)
    control.stop(run)
    status = over(run)
    assert status.state == "stopped", (status.reason, logs(run))
    newest = checkpoints.newest_complete(run)
    assert newest is not None and (checkpoints.step_of(newest) or 0) > begin
    assert read_json(newest / "trainer_state.json")["global_step"] == checkpoints.step_of(newest)
    assert steps_of(run)[-1] == checkpoints.step_of(newest)
    assert max(map(steps_of(run).count, steps_of(run))) <= 2, (
        "told once in each attempt, by the first process"
    )


def listening(pids: list[int]) -> list[IPv4Address | IPv6Address]:
    """The addresses at which processes listen for others, one for each socket."""
    sockets = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            sockets.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found: list[IPv4Address | IPv6Address] = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:  # LISTEN
                number = bytes.fromhex(words[1].partition(":")[0])
                parts = [number[at : at + 4][::-1] for at in range(0, len(number), 4)]
                found.append(ip_address(b"".join(parts)))
    return found


def test_a_socket_for_everybody_would_be_seen() -> None:
    with socket.create_server(("0.0.0.0", 0)):
        assert IPv4Address("0.0.0.0") in listening([os.getpid()])
    if socket.has_dualstack_ipv6():
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            assert IPv6Address("::") in listening([os.getpid()])


def steps_of(run: Run) -> list[int]:
    """The steps that were told, in order."""
    return [event.step for event in read_events(run.events)[0] if event.event == "metric"]


def environment_of(pid: int) -> dict[str, str]:
    """A process's environment."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    return dict(word.partition("=")[::2] for word in words)
