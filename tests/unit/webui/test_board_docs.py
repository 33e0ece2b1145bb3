"""docs/board.md: its REST examples run as they stand, and its options are the command's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.unit.webui.conftest import TOKEN

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "board.md").read_text("utf-8")


def test_the_examples_run_as_they_stand(board, home, tmp_path, monkeypatch):
    """Against a real server; the run waits in the queue, since training is not what is shown."""
    from core.runs import control

    monkeypatch.setattr(control, "_spawn", lambda *_: os.getpid())
    assert shutil.which("curl"), "apt install curl"
    program = re.search(r"## REST.*?```sh\n(.*?)```", DOCS, re.DOTALL)
    assert program
    script = program[1].replace("/tmp/who.jsonl", f"{tmp_path}/who.jsonl")
    environment = {**os.environ, "BOARD": board.url, "TOKEN": TOKEN}
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    for said in ('"kept":4', '"ok":true', '"forecast"', '"title":"first"', "event: state", '"cpus"'):
        assert said in done.stdout, said
    assert len(list((home / "runs").iterdir())) == 1


def test_every_option_of_the_command_is_told():
    import inspect

    from core.cli.board import board as command

    options = {name.replace("_", "-") for name in inspect.signature(command).parameters if name != "context"}
    told = set(re.findall(r"^\| `--(?:no-)?([a-z-]+)`", DOCS, re.MULTILINE))
    assert told == options
