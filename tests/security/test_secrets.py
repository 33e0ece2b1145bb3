"""Row 10: secrets of the operator's environment appear in no file, log, answer or command line, a real run included."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import psutil
import pytest

from tests.security.conftest import HF_CANARY, KEY_CANARY

JOB = """\
name: canary
model: MODEL
data: {path: data/samples/persona.jsonl, take: 4}
stage: {name: sft, max_length: 256}
method: {name: lora, rank: 1}
train: {max_steps: 1, batch_size: 1, gradient_accumulation: 1, save_steps: 1}
evaluate: {prompts: [x], max_new_tokens: 1}
"""
CANARIES = (HF_CANARY, KEY_CANARY)
pytestmark = pytest.mark.timeout(900)
"""The first of them waits for a real run."""


@pytest.fixture(scope="module")
def run(board, tiny: str) -> dict[str, object]:
    """A real run, watched while it goes: the words of every process's command line."""
    model = board.home / "models" / "tiny"
    shutil.copytree(tiny, model)
    answer = board.client.post("/api/jobs/submit", json={"yaml": JOB.replace("MODEL", str(model))})
    assert answer.status_code == 201, answer.text
    id, words = answer.json()["run"]["id"], set()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for process in psutil.process_iter():
            try:
                if _is_of(board, process):
                    words.update(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        row = board.client.get(f"/api/runs/{id}").json()
        if row["state"] in ("succeeded", "failed", "stopped", "lost"):
            assert row["state"] == "succeeded", row["reason"]
            assert any("core.training.worker" in word for word in words)
            return {"id": id, "words": words}
        time.sleep(0.1)
    raise AssertionError("the run did not end")


def _is_of(board, process: psutil.Process) -> bool:
    """Whether a process was begun by this board or names its home; others on the machine may say what they like."""
    return process.environ().get("HF_TOKEN") == HF_CANARY or str(board.home) in " ".join(process.cmdline())


def test_no_command_line_holds_a_secret_or_a_word_of_the_user(board, run):
    assert not [word for word in run["words"] for canary in CANARIES if canary in word]
    assert not [
        word for word in run["words"] if "persona" in word or "canary" in word.replace(str(run["id"]), "")
    ]


def test_no_file_of_the_home_and_no_log_holds_a_secret(board, run):
    files = [path for path in board.home.rglob("*") if path.is_file() and path.stat().st_size < 50 << 20]
    assert len(files) > 15
    for path in [*files, board.log, *Path(board.home.parent).glob("slots/**/*")]:
        if path.is_file():
            content = path.read_bytes()
            assert not [one for one in CANARIES if one.encode() in content], path


def test_no_answer_holds_a_secret(board, run):
    id = run["id"]
    paths = [
        f"/api/runs/{id}{part}"
        for part in ("", "/events", "/log", "/metrics", "/copy", "/files/plan", "/files/log")
    ]
    for path in [
        *paths,
        "/api/runs",
        "/api/machine",
        "/api/models",
        "/api/data",
        "/api/schema",
        "/config",
        "/",
    ]:
        answer = board.client.get(path)
        assert answer.status_code == 200, path
        assert not [one for one in CANARIES if one in answer.text], path


def test_no_export_and_no_download_holds_a_secret(board, run):
    exports = f"/api/runs/{run['id']}/exports"
    begun = [board.client.post(exports, json={"name": target}) for target in ("card", "adapter")]
    assert [one.status_code for one in begun] == [201, 201], [one.text for one in begun]
    for name in (one.json()["export"]["name"] for one in begun):
        deadline = time.monotonic() + 300
        while (now := board.client.get(f"{exports}/{name}").json()["export"])["state"] != "done":
            assert now["state"] not in ("failed", "cancelled") and time.monotonic() < deadline, now
            time.sleep(0.2)
        archive = board.client.get(f"{exports}/{name}/download")
        assert archive.status_code == 200 and len(archive.content) > 1024
        written = [path for path in Path(now["path"]).rglob("*") if path.is_file()]
        assert written
        for content in (archive.content, *(path.read_bytes() for path in written)):
            assert not [one for one in CANARIES if one.encode() in content], name
    kept = [path for path in (board.home / "runs" / str(run["id"]) / "exports").iterdir() if path.is_file()]
    assert kept, "records and logs"
    assert not [path for path in kept for one in CANARIES if one.encode() in path.read_bytes()]


def test_a_secret_that_a_library_prints_is_not_shown(board, run):
    log = board.home / "runs" / str(run["id"]) / "log.txt"
    with log.open("a") as file:
        file.write(f"401 for token {HF_CANARY}, key={KEY_CANARY}\n")
    (line,) = board.client.get(f"/api/runs/{run['id']}/log", params={"tail": 1}).json()["lines"]
    assert line == "401 for token hf_…, key=sk-…"


def test_the_training_process_hears_only_what_its_plan_names(board, run):
    plan = board.client.get(f"/api/runs/{run['id']}").json()["plan"]
    assert "JUDGE_API_KEY" not in plan["environment"] and "FACTORY_TOKEN" not in plan["environment"]
    assert all(isinstance(name, str) and "=" not in name for name in plan["environment"])
