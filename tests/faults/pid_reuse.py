"""Gives the numbers of a dead run's processes to an innocent one. Runs alone in a pid namespace, where it may choose.

`unshare --pid --fork --mount-proc python -m tests.faults.pid_reuse HOME`; exit code 0 when nobody was harmed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from core.runs import control
from core.runs.identity import process_start
from core.runs.queue import Queue
from core.runs.states import read_status
from core.runs.watch import Watch
from data.errors import FactoryError
from tests.faults.conftest import child, start, supervisor, until


def main(home: Path) -> None:
    """Kill a run, reuse its numbers, and let everybody act who might confuse the two."""
    run = start(home, "train", 60)
    until(run, "running")
    waiting = start(home, "train", 60)
    holder = Queue().holders()["cpu0"]
    numbers = [supervisor(run), child(run)]
    for number in numbers:
        os.kill(number, signal.SIGKILL)
    until(run, "lost")
    until(waiting, "running")
    control.stop(waiting, now=True)
    until(waiting, "stopped")
    for number in numbers:
        _wait_until_free(number)
    innocents = [_born_as(number) for number in numbers]
    assert innocents == numbers, f"{innocents} are not {numbers}"
    assert holder["pid"] in numbers and process_start(holder["pid"]) != holder["start"]

    assert read_status(run).state == "lost" and not read_status(run).orphans
    try:
        control.stop(run)
        raise AssertionError("a lost run was stopped")
    except FactoryError as error:
        assert error.findings[0].code == "run_not_running"
    assert control.end_orphans(run, grace=0.1) == 0
    Watch(run.path).sleep_until_one_ends([holder])  # must not wait for the innocent's end
    time.sleep(0.2)
    for number in innocents:
        assert os.waitpid(number, os.WNOHANG) == (0, 0), f"{number} was killed"
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def _wait_until_free(number: int) -> None:
    deadline = time.monotonic() + 120
    while process_start(number) is not None and time.monotonic() < deadline:
        try:
            os.waitpid(-1, os.WNOHANG)  # we are the namespace's init
        except ChildProcessError:
            pass
        time.sleep(0.02)


def _born_as(number: int) -> int:
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1), encoding="ascii")
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


if __name__ == "__main__":
    main(Path(sys.argv[1]))
