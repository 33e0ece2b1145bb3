"""The queue of a machine: in order, never two on a device, small and asleep while waiting, free after any death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.runs import control
from core.runs.folder import Run
from core.runs.listing import rows
from core.runs.queue import Grant, Queue, Wait, new_key, wish_for
from core.runs.states import read_status
from core.runs.storage import read_json
from core.runs.watch import Watch
from data.errors import FactoryError
from tests.faults.conftest import JOB, over, start, supervisor, until


def _on(*devices: int) -> dict[str, Any]:
    return JOB | {"hardware": {"devices": list(devices)}}


def _times(run: Run) -> tuple[float, float]:
    record = read_json(run.state_json)
    return record["started"], record["ended"]


def _stop(*runs: Run) -> None:
    for run in runs:
        if not read_status(run).over:
            control.stop(run, now=True)
    for run in runs:
        over(run)


def test_six_jobs_on_two_slots_run_in_order_and_never_more_than_two(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTORY_CPU_SLOTS", "2")
    runs = [start(home, "train", 0.4) for _ in range(6)]
    assert [over(run).state for run in runs] == ["succeeded"] * 6
    times = [_times(run) for run in runs]
    begins = [begin for begin, _ in times]
    # Two neighbours may get their slots at one moment and tell the time in either order; no run overtakes a pair.
    assert all(begin <= later for place, begin in enumerate(begins) for later in begins[place + 2 :])
    for begin, _ in times:
        assert sum(one <= begin < end for one, end in times) <= 2
    assert {read_json(run.state_json)["slots"][0] for run in runs} == {"cpu0", "cpu1"}
    assert Queue().line() == [] and Queue().holders() == {}


def test_a_list_shows_the_place_in_the_queue_and_who_runs(home: Path) -> None:
    runs = [start(home, "train", 30) for _ in range(3)]
    until(runs[0], "running")
    assert [(row.status.state, row.place) for row in rows(home)] == [
        ("running", None),
        ("queued", 1),
        ("queued", 2),
    ]
    assert Queue().holders()["cpu0"]["run"] == str(runs[0].path)
    _stop(*runs[::-1])


def test_a_killed_supervisor_frees_its_slot(home: Path) -> None:
    first, second = start(home, "train", 30), start(home, "train", 0.2)
    until(first, "running")
    assert read_status(second).state == "queued"
    os.kill(supervisor(first), signal.SIGKILL)
    assert over(second).state == "succeeded"
    assert over(first).state == "lost"


def test_a_slot_stays_taken_while_orphans_use_its_device(home: Path) -> None:
    first, second = start(home, "deaf", 60), start(home, "train", 0.2)
    until(first, "running")
    os.kill(supervisor(first), signal.SIGKILL)
    until(first, "lost")
    time.sleep(1.2)
    assert read_status(second).state == "queued"
    control.end_orphans(first, grace=0.1)
    assert over(second).state == "succeeded"


def test_a_waiting_run_that_dies_holds_nobody_up(home: Path) -> None:
    runs = [start(home, "train", 1.0), start(home, "train", 0.1), start(home, "train", 0.1)]
    os.kill(supervisor(runs[1]), signal.SIGKILL)
    assert over(runs[2]).state == "succeeded"
    assert over(runs[1]).state == "lost"
    assert control.resume(runs[1]).attempt == 2
    assert over(runs[1]).state == "succeeded"


def test_a_waiting_run_can_be_cancelled(home: Path) -> None:
    runs = [start(home, "train", 30), start(home, "train", 30)]
    until(runs[0], "running")
    control.stop(runs[1])
    status = over(runs[1])
    assert status.state == "stopped" and status.reason == "cancelled while it waited in the queue"
    assert status.record["exit"] is None and Queue().line() == []
    _stop(runs[0])


def test_a_waiting_run_can_be_moved_to_the_front(home: Path) -> None:
    runs = [
        start(home, "until_told"),
        start(home, "train", 0.1),
        start(home, "train", 0.1),
        start(home, "train", 0.1),
    ]
    until(runs[0], "running")
    control.to_front(runs[3])
    control.to_front(runs[2])
    assert [row.place for row in rows(home)] == [None, 3, 1, 2]
    (runs[0].path / "enough").touch()
    for run in runs:
        assert over(run).state == "succeeded"
    begun = sorted(runs, key=lambda run: _times(run)[0])
    assert begun == [runs[0], runs[2], runs[3], runs[1]]
    with pytest.raises(FactoryError, match="is not waiting in the queue: it has succeeded"):
        control.to_front(runs[1])


def test_a_run_that_wants_two_devices_is_not_starved_by_runs_that_want_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTORY_CPU_SLOTS", "2")
    long = start(home, "train", 1.0, job=_on(0))
    until(long, "running")
    both = start(home, "train", 0.1, job=_on(0, 1))
    late = start(home, "train", 0.1, job=_on(1))
    for run in (long, both, late):
        assert over(run).state == "succeeded"
    assert _times(long)[1] <= _times(both)[0] and _times(both)[1] <= _times(late)[0]
    assert read_json(both.state_json)["slots"] == ["cpu0", "cpu1"]


def test_a_run_that_waits_for_one_device_holds_up_nobody_on_the_other(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTORY_CPU_SLOTS", "2")
    long = start(home, "train", 30, job=_on(0))
    until(long, "running")
    behind = start(home, "train", 30, job=_on(0))
    free = start(home, "train", 0.1)
    assert over(free).state == "succeeded" and read_json(free.state_json)["slots"] == ["cpu1"]
    _stop(behind, long)


def test_two_homes_share_the_devices_of_the_machine(home: Path, tmp_path: Path) -> None:
    one, other = start(home, "train", 0.5), start(tmp_path / "other", "train", 0.1)
    until(one, "running")
    assert read_status(other).state == "queued"
    assert (over(one).state, over(other).state) == ("succeeded", "succeeded")
    assert _times(one)[1] <= _times(other)[0]


def test_a_waiting_supervisor_is_small_and_sleeps(home: Path) -> None:
    runs = [start(home, "train", 30), start(home, "train", 30), start(home, "train", 30)]
    until(runs[0], "running")
    time.sleep(0.5)
    pid = supervisor(runs[2])
    before = _proc(pid)
    time.sleep(1.5)
    after = _proc(pid)
    assert after["voluntary_ctxt_switches"] == before["voluntary_ctxt_switches"]
    assert after["VmRSS"] < 20 * 1024  # KiB; the interpreter alone takes 8.5 MiB
    _stop(*runs[::-1])


def _proc(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return {
        name: int(value.split()[0]) for name, value in pairs if value.split() and value.split()[0].isdigit()
    }


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(home: Path) -> None:
    with pytest.raises(FactoryError, match=r"names cpu7, but this machine offers cpu0"):
        start(home, "train", job=_on(7))
    assert rows(home) == []


@pytest.mark.root
def test_another_users_run_waits_in_the_same_line(home: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    one = start(home, "train", 0.6)
    until(one, "running")
    slots = Path(os.environ["FACTORY_SLOTS"])
    for folder in (slots, *slots.parents):
        if folder != Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    queue, wish, key = Queue(), wish_for(None), new_key()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            queue.enter(wish, tmp_path / "theirs", key, lambda ticket: os.dup(ticket) and os.getpid())
            answer = queue.try_take(key, tmp_path / "theirs")
            assert isinstance(answer, Wait) and answer.holders[0]["run"] == str(one.path)
            Watch(one.path).sleep_until_one_ends(answer.holders)
            assert isinstance(queue.try_take(key, tmp_path / "theirs"), Grant)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    until(one, lambda _: bool(queue.line()))
    assert queue.line()[0].holder()["user"] == "nobody"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert over(one).state == "succeeded"
    assert queue.line() == [] and queue.holders() == {}


def test_a_log_without_a_terminal_says_once_that_its_run_waits(home: Path, tmp_path: Path) -> None:
    first, second = start(home, "train", 30), start(home, "train", 1)
    until(first, "running")
    words = tmp_path / "out.txt"
    with words.open("w") as out:
        command = [sys.executable, "-m", "core.cli", "--home", str(home), "logs", "-f", second.id]
        with subprocess.Popen(command, stdout=out, stderr=out) as follower:
            deadline = time.monotonic() + 120
            while "waiting for a free device" not in words.read_text("utf-8"):
                assert time.monotonic() < deadline, words.read_text("utf-8")
                time.sleep(0.05)
            time.sleep(0.5)
            follower.terminate()
    assert words.read_text("utf-8").count("waiting for a free device") == 1
    _stop(first, second)
