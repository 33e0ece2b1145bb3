"""Following a run from a terminal: Ctrl-C asks, a closed terminal changes nothing, and what is shown is true."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.runs import control
from core.runs.folder import Run
from core.runs.states import read_status
from tests.faults.conftest import child, over, start, until

FACTORY = [sys.executable, "-m", "core.cli"]


class Terminal:
    """A command in a terminal of its own, as a person sees it."""

    def __init__(self, *words: str) -> None:
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": "120"}
            os.execv(sys.executable, [*FACTORY, *words])
        self.text = ""

    def see(self, pattern: str, seconds: float = 120.0) -> None:
        """Wait until the pattern shows up."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"{pattern!r} did not show up in {self.text[-2000:]!r}"
            if select.select([self.screen], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.screen, 65536).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    assert re.search(pattern, self.text), f"{pattern!r} is not in {self.text[-2000:]!r}"

    def type(self, keys: str) -> None:
        """Press keys; \\x03 is Ctrl-C."""
        self.text = ""
        os.write(self.screen, keys.encode())

    def code(self) -> int:
        """The exit code, once it has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def run(home: Path) -> Run:
    """A run of five minutes, running."""
    made = start(home, "train", 300)
    until(made, "running")
    return made


def test_ctrl_c_asks_and_s_saves_and_stops(run: Run, home: Path) -> None:
    terminal = Terminal("--home", str(home), "logs", "-f", run.id)
    terminal.see(r"step\s+\d+")
    terminal.type("\x03")
    terminal.see(r"\[s/d/g\]")
    assert read_status(run).state == "running"
    terminal.type("s\n")
    terminal.see(rf"Run {run.id} stopped")
    terminal.see(rf"factory resume {run.id}")
    assert terminal.code() == 1
    assert over(run).record["exit"] == 3


def test_ctrl_c_asks_and_d_leaves_the_run_running(run: Run, home: Path) -> None:
    terminal = Terminal("--home", str(home), "logs", "-f", run.id)
    terminal.see(r"step\s+\d+")
    terminal.type("\x03")
    terminal.see(r"\[s/d/g\]")
    terminal.type("g\n")
    terminal.see(r"step\s+\d+")
    terminal.type("\x03")
    terminal.see(r"\[s/d/g\]")
    terminal.type("d\n")
    terminal.see(rf"Run {run.id} goes on.*factory logs -f {run.id}")
    assert terminal.code() == 0
    assert read_status(run).state == "running"
    control.stop(run, now=True)
    over(run)


def test_a_closed_terminal_leaves_the_run_running(run: Run, home: Path) -> None:
    terminal = Terminal("--home", str(home), "logs", "-f", run.id)
    terminal.see(r"step\s+\d+")
    os.close(terminal.screen)  # the kernel sends SIGHUP
    terminal.code()
    assert not run.stop_file.exists(), "nobody asked it to stop"
    assert read_status(run).state == "running"
    control.stop(run, now=True)
    over(run)


def test_stop_shows_its_countdown_and_says_how_to_go_on(run: Run, home: Path) -> None:
    done = subprocess.run(
        [*FACTORY, "--home", str(home), "stop", run.id], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert f"Run {run.id} stopped." in done.stdout and f"factory resume {run.id}" in done.stdout
    again = subprocess.run(
        [*FACTORY, "--home", str(home), "stop", run.id], capture_output=True, text=True, timeout=120
    )
    assert (again.returncode, "is not running: it was stopped" in again.stderr) == (2, True)


def test_a_deaf_run_shows_the_time_until_it_is_killed(home: Path) -> None:
    deaf = start(home, "deaf", 60)
    until(deaf, "running")
    terminal = Terminal("--home", str(home), "stop", deaf.id)
    terminal.see(r"is stopping, 0:\d\d until it is killed")
    control.stop(deaf)
    terminal.see("ended at once, as was asked")  # by the second stop
    assert terminal.code() == 0


def test_resume_follows_to_the_end_and_json_is_one_line(home: Path) -> None:
    made = start(home, "once_more")
    until(made, "running")
    control.stop(made)
    assert over(made).state == "stopped"
    words = [*FACTORY, "--home", str(home), "resume", made.id[-4:], "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    assert (told["id"], told["state"], told["loss"], told["model"]) == (
        made.id,
        "succeeded",
        1.5,
        str(made.model),
    )
    assert "step" in done.stderr


def test_a_follower_of_a_killed_run_ends_with_the_reason(run: Run, home: Path) -> None:
    words = [*FACTORY, "--home", str(home), "logs", "-f", run.id]
    follower = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    os.kill(child(run), signal.SIGKILL)
    out, _ = follower.communicate(timeout=120)
    assert follower.returncode == 1
    assert "failed: killed by signal 9" in out and f"factory logs {run.id}" in out
