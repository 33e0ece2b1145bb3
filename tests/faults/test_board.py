"""Faults of the board: killed in every phase of a run, a full disk, and what was left when it comes back."""

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
from uuid import uuid4

import httpx
import pytest

from core.runs import control
from core.runs.folder import Run, list_runs
from tests.faults.conftest import over, until
from tests.loops import run_async

ROOT = Path(__file__).resolve().parents[2]
JOB = "model: smollm2-135m\nstage: sft\ndata: data/samples/persona.jsonl\n"
PROGRAM = """
import sys
from pathlib import Path
import uvicorn
from core.engines import trl
from webui.guard import Guard
from webui.server import Server, build_api
from webui.settings import Settings, listen

trl.plan = lambda job, home: [sys.executable, "-S", "-m", "tests.faults.stand_in", *sys.argv[2:]]
listening = listen("127.0.0.1", 0)
settings = Settings(home=Path(sys.argv[1]), port=listening.getsockname()[1])
app = build_api(settings)
config = uvicorn.Config(Guard(app, settings), log_level="error", access_log=False, ws="none")
Server(config, lambda: print(settings.port, flush=True), app.state.hub.close).run(sockets=[listening])
"""


class Board:
    """The board's server without pages, a process of its own whose runs train with the stand-in."""

    def __init__(self, home: Path, *behaviour: object) -> None:
        command = [sys.executable, "-c", PROGRAM, str(home), *map(str, behaviour)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def submit(self, home: Path, draft: str | None = None) -> Run:
        """Start a run over REST."""
        answer = self.client.post("/api/jobs/submit", json={"yaml": JOB, "draft": draft})
        assert answer.status_code in (200, 201), answer.text
        return Run(home / "runs" / answer.json()["run"]["id"])

    def end(self, sign: int = signal.SIGKILL) -> None:
        """End it, hard."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(sign)
            self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def board(home: Path) -> Iterator[Callable[..., Board]]:
    """Starts boards whose runs behave so, and ends them."""
    boards: list[Board] = []

    def begin(*behaviour: object) -> Board:
        boards.append(Board(home, *behaviour))
        return boards[-1]

    yield begin
    for one in boards:
        one.end()


def test_a_run_outlives_the_board_killed_in_every_phase(home: Path, board: Any) -> None:
    first, second, third = board("until_told"), board("train", 1), board("train", 300)
    running = first.submit(home)
    first.end()  # while it starts
    until(running, "running")  # or the two could go in the other order
    waiting = third.submit(home)
    until(waiting, "queued")
    states = {row["id"]: row["state"] for row in second.client.get("/api/runs").json()["runs"]}
    assert states == {running.id: "running", waiting.id: "queued"}
    second.end()  # while it runs, and another waits
    (running.path / "enough").touch()
    assert over(running).state == "succeeded"
    until(waiting, "running")
    assert third.client.post(f"/api/runs/{waiting.id}/stop").status_code == 200
    third.end()  # while it stops
    assert over(waiting).state == "stopped"
    told = {row["id"]: row["state"] for row in board("train", 1).client.get("/api/runs").json()["runs"]}
    assert told == {running.id: "succeeded", waiting.id: "stopped"}


def test_a_draft_pressed_again_after_a_kill_is_the_same_run(home: Path, board: Any) -> None:
    draft = str(uuid4())
    first = board("train", 0.5)
    run = first.submit(home, draft)
    first.end()
    assert board("train", 0.5).submit(home, draft) == run
    assert [one.id for one in list_runs(home)] == [run.id]
    assert over(run).state == "succeeded"


def test_killed_at_any_moment_of_a_start_there_is_one_run_or_none(home: Path, board: Any) -> None:
    """Whatever the moment of the kill: pressing again with the same draft ends in exactly one run of it."""
    drafts = [str(uuid4()) for _ in range(3)]
    for number, draft in enumerate(drafts):
        one = board("train", 0.2)
        one.client.get("/api/machine")
        request = subprocess.Popen(
            [
                "curl",
                "--silent",
                "--json",
                json.dumps({"yaml": JOB, "draft": draft}),
                f"http://127.0.0.1:{one.port}/api/jobs/submit",
            ],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(0.05 + 0.15 * number)
        one.end()
        request.wait(120)
    last = board("train", 0.2)
    runs = [last.submit(home, draft) for draft in drafts]
    assert len({run.id for run in runs}) == 3 and len(list_runs(home)) == 3
    for run in runs:
        status = over(run)
        if (
            status.state != "succeeded"
        ):  # killed between the folder and its supervisor: lost, and so resumable
            assert status.state == "lost"
            control.resume(run)
            assert over(run).state == "succeeded"


@pytest.mark.root
def test_an_upload_that_fills_the_disk_leaves_nothing_and_says_so(
    home: Path, tmp_path: Path, board: Any
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    data = home / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(data)], check=True)
    try:
        one = board("train", 0.2)
        refused = one.client.post("/api/data", params={"name": "big.jsonl"}, content=b"x" * 100)
        assert refused.status_code == 413 and "disk has no room" in refused.json()["error"]["message"]
        assert list(data.iterdir()) == []
    finally:
        subprocess.run(["umount", str(data)], check=True)


@pytest.mark.root
def test_a_disk_that_fills_while_an_upload_runs_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")

    from data.errors import FactoryError
    from webui import uploads
    from webui.settings import Settings

    monkeypatch.setattr(uploads, "SPARE", 0)
    data = home / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(data)], check=True)
    try:
        monkeypatch.setattr(uploads, "_room", lambda settings, target: 1 << 40)

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * (1 << 20)

        with pytest.raises(FactoryError) as refused:
            run_async(uploads.take_in(Settings(home=home), "big.jsonl", chunks()))
        assert refused.value.findings[0].code == "disk_full" and list(data.iterdir()) == []
    finally:
        subprocess.run(["umount", str(data)], check=True)
