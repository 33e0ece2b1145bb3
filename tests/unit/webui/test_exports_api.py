"""Exports over REST: started, watched, taken back, downloaded as they lie on the disk, and refused in words."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from core.runs import exports
from core.runs.folder import Run
from core.runs.storage import write_json
from tests.unit.webui.conftest import Board, make_run


def finished(run: Run, name: str = "card", files: dict[str, bytes] | None = None, **facts: Any) -> None:
    """A finished export as its process leaves it."""
    folder = run.exports / name
    (folder / "inner").mkdir(parents=True)
    for inner, content in (files or {"README.md": b"# A model\n", "inner/x.bin": b"\1" * 1500}).items():
        (folder / inner).write_bytes(content)
    record = {"name": name, "target": name, "state": "done", "path": str(folder), "started": 1.0, **facts}
    write_json(run.exports / f"{name}.json", {**record, "verified_by": ["a reader"], "bytes": 1510})


@pytest.fixture
def run(board: Board, home: Path) -> Run:
    """A finished run, as far as its records go; it has no weights."""
    made, _ = make_run(home, "succeeded")
    made.exports.mkdir()
    return made


def test_what_a_run_can_become_is_told_with_the_reason_where_it_cannot(board: Board, run: Run) -> None:
    told = board.client.get(f"/api/runs/{run.id}/exports").json()
    assert told["exports"] == []
    assert [one["name"] for one in told["targets"]] == ["adapter", "merged", "gguf", "ollama", "hub", "card"]
    assert all(one["about"] and one["refused"] is None for one in told["targets"])


def test_a_finished_export_is_listed_and_downloaded_whole(board: Board, run: Run) -> None:
    finished(run)
    (one,) = board.client.get(f"/api/runs/{run.id}/exports").json()["exports"]
    assert (one["name"], one["state"], one["verified_by"]) == ("card", "done", ["a reader"])
    answer = board.client.get(f"/api/runs/{run.id}/exports/card/download")
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["content-disposition"] == f'attachment; filename="{run.id}-card.tar"'
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        names = {member.name for member in archive.getmembers()}
        content = archive.extractfile("card/inner/x.bin")
        assert content is not None and content.read() == b"\1" * 1500
    assert names == {"card/README.md", "card/inner/x.bin"}
    single = board.client.get(f"/api/runs/{run.id}/exports/card/download?file=README.md")
    assert single.content == b"# A model\n"


@pytest.mark.parametrize("name", ["../job.json", "..%2fjob.json", "/etc/passwd", "nothing.txt", "link"])
def test_no_file_outside_the_export_is_given(board: Board, run: Run, name: str) -> None:
    finished(run)
    (run.exports / "card" / "link").symlink_to("/etc/passwd")
    assert board.client.get(f"/api/runs/{run.id}/exports/card/download?file={name}").status_code == 404
    answer = board.client.get(f"/api/runs/{run.id}/exports/card/download")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert "card/link" not in archive.getnames()


def test_an_export_that_lies_elsewhere_is_not_sent(board: Board, run: Run, tmp_path: Path) -> None:
    finished(run, path=str(tmp_path))
    assert board.client.get(f"/api/runs/{run.id}/exports/card/download").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "mergd"}, 422, "export_unknown"),
        ({"name": "merged", "quant": "q8_0"}, 422, "export_setting"),
        ({"name": "merged", "out": "/tmp/x"}, 422, None),
        ({"name": "merged", "checkpoint": 9}, 404, "checkpoint_not_found"),
        ({"name": "merged"}, 422, "model_not_there"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_words(
    board: Board, run: Run, body: dict[str, Any], status: int, code: str | None
) -> None:
    answer = board.client.post(f"/api/runs/{run.id}/exports", json=body)
    assert answer.status_code == status, answer.text
    if code is not None:
        assert answer.json()["error"]["code"] == code


def test_an_export_begins_and_its_record_tells_how_far_it_is(
    board: Board, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess
    import sys

    monkeypatch.setattr(exports, "weights_of", lambda run, step: run.model)
    program = "import sys, time; time.sleep(60)"

    def stand_in(run: Run, name: str, lock: int, spec: Any) -> Any:
        return subprocess.Popen([sys.executable, "-c", program], pass_fds=(lock,))

    monkeypatch.setattr(exports, "_spawn", stand_in)
    answer = board.client.post(f"/api/runs/{run.id}/exports", json={"name": "gguf", "quant": "f16"})
    assert answer.status_code == 201 and answer.json()["export"]["name"] == "gguf-f16"
    record = json.loads((run.exports / "gguf-f16.json").read_text("utf-8"))
    (pid,) = (one for one in _holders(run) if one)
    write_json(run.exports / "gguf-f16.json", {**record, "state": "running", "share": 0.4, "pid": pid})
    told = board.client.get(f"/api/runs/{run.id}/exports/gguf-f16").json()["export"]
    assert (told["state"], told["share"]) == ("running", 0.4)
    assert board.client.delete(f"/api/runs/{run.id}/exports/gguf-f16").status_code == 409
    ended = board.client.post(f"/api/runs/{run.id}/exports/gguf-f16/cancel").json()["export"]
    assert (
        ended["state"] == "failed" and "killed" in ended["error"]["message"]
    )  # the stand-in writes no last word
    assert board.client.delete(f"/api/runs/{run.id}/exports/gguf-f16").json() == {
        "name": "gguf-f16",
        "bytes": 0,
    }
    assert board.client.get(f"/api/runs/{run.id}/exports/gguf-f16").status_code == 404


def _holders(run: Run) -> list[int]:
    from core.runs.process import holders_of

    deadline = time.monotonic() + 120
    while not (found := holders_of(run.exports / "gguf-f16.lock")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found[:1]


def test_a_run_without_a_model_has_no_result_yet(board: Board, run: Run) -> None:
    assert board.client.get(f"/api/runs/{run.id}/result").json() == {"result": None}
