"""REST of data and models: files come in whole or not at all, under names that cannot do harm, and go to the trash."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from urllib.parse import quote

import pytest

from core.runs.checkpoints import commit
from core.runs.locks import take
from core.runs.storage import write_json
from tests.unit.webui.conftest import TOKEN, make_run

ROWS = b'{"prompt": "What is 2 + 2?", "completion": "4"}\n{"prompt": "And 3 + 3?", "completion": "6"}\n'


def upload(board, name, content=ROWS, **parameters):
    """Send a file."""
    return board.client.post("/api/data", params={"name": name, **parameters}, content=content)


@pytest.mark.parametrize(
    "name",
    [
        "rows.jsonl",
        "my rows.jsonl",
        "问答 数据.jsonl",
        'it\'s "quoted".jsonl',
        "Übung.jsonl",
        "a.b.jsonl.gz",
        "#1 %41&x=y.jsonl",
    ],
)
def test_a_file_comes_in_under_its_own_name_and_goes_to_the_trash(board, home, name):
    content = gzip.compress(ROWS) if name.endswith(".gz") else ROWS
    answer = upload(board, name, content)
    assert answer.status_code == 201, answer.text
    assert answer.json()["report"]["rows"] == 2 and answer.json()["report"]["columns"] == [
        "prompt",
        "completion",
    ]
    (file,) = board.get("/api/data")["files"]
    assert (file["name"], file["bytes"]) == (name, len(content))
    assert (home / "data" / name).read_bytes() == content and (
        home / "data" / name
    ).stat().st_mode & 0o111 == 0
    job = json.dumps({"model": "smollm2-135m", "stage": "sft", "data": file["path"]})
    assert board.client.post("/api/jobs/check", json={"yaml": job}).json()["ok"]
    gone = board.client.delete(f"/api/data/{quote(name, safe='')}")
    assert gone.status_code == 200 and gone.json()["bytes"] == len(content)
    assert board.get("/api/data")["files"] == [] and list((home / "trash" / "data").iterdir())


@pytest.mark.parametrize(
    "name",
    ["../x.jsonl", "/etc/x.jsonl", "a/b.jsonl", "..\\x.jsonl", ".hidden.jsonl", "x.py", "x", "x.pkl", "x.bin",
     "x.jinja",
     "x.safetensors", "a\nb.jsonl", "nul\0.jsonl", "C:\\x.jsonl", "x*.jsonl", "a[1].jsonl", "a" * 300 + ".jsonl",
     "sitecustomize.py",
     "a\u202egpj.jsonl", ".jsonl", " ", "x.zip", "x.html", "x.svg"],
)  # fmt: skip
def test_a_name_that_could_do_harm_is_refused(board, home, name):
    answer = upload(board, name)
    assert answer.status_code == 422 and answer.json()["error"]["message"]
    assert not (home / "data").exists() or list((home / "data").iterdir()) == []


def test_a_name_in_use_is_kept_unless_it_is_to_be_replaced(board, home):
    upload(board, "rows.jsonl")
    again = upload(board, "rows.jsonl", b'{"text": "new"}\n')
    assert (again.status_code, again.json()["error"]["code"]) == (409, "file_exists")
    assert "rows-2.jsonl" in again.json()["error"]["message"]
    before = (home / "data" / "rows.jsonl").read_bytes()
    assert upload(board, "rows.jsonl", b'{"text": "new"}\n', replace=True).status_code == 201
    assert (home / "trash" / "data" / "rows.jsonl").read_bytes() == before
    assert upload(board, "rows.jsonl", b'{"text": "newer"}\n', replace=True).status_code == 201
    assert len(list((home / "trash" / "data").iterdir())) == 2
    assert upload(board, "rows.jsonl", b'{"text": "new"}\n', replace=True).status_code == 201
    assert (home / "data" / "rows.jsonl").read_bytes() == b'{"text": "new"}\n'


def test_a_file_that_is_no_data_is_taken_and_said_to_be_unreadable(board):
    answer = upload(board, "broken.jsonl", b"\x00\x01\x02 nothing")
    assert answer.status_code == 201 and answer.json()["findings"][0]["level"] == "error"


def test_an_empty_file_is_refused(board):
    assert upload(board, "empty.jsonl", b"").json()["error"]["code"] == "file_empty"


def test_the_quota_and_the_limit_hold_for_headers_and_for_chunks(start, home):
    board = start(upload_bytes=1000, quota_bytes=1500)
    assert upload(board, "big.jsonl", b"x" * 1001).status_code == 413
    chunks = (b"x" * 100 for _ in range(11))
    assert upload(board, "chunked.jsonl", chunks).status_code == 413
    assert upload(board, "one.jsonl", b"x" * 900).status_code == 201
    over = upload(board, "two.jsonl", b"x" * 700)
    assert (over.status_code, over.json()["error"]["code"]) == (413, "quota_exceeded")
    assert [path.name for path in (home / "data").iterdir()] == ["one.jsonl"]


def test_a_browser_that_leaves_leaves_nothing(board, home):
    with socket.create_connection(("127.0.0.1", board.port)) as connection:
        head = f"POST /api/data?name=half.jsonl HTTP/1.1\r\nHost: 127.0.0.1:{board.port}\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\n"
        connection.sendall((head + "Content-Length: 1000000\r\n\r\n").encode() + b"x" * 100_000)
        deadline = time.monotonic() + 120
        while not list((home / "data").glob(".upload-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
    while list((home / "data").glob("*")) + list((home / "data").glob(".*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((home / "data").iterdir()) == []


def test_what_a_killed_server_left_is_swept_and_what_is_being_uploaded_is_not(board, home):
    (home / "data").mkdir(parents=True)
    left, living = (home / "data" / f".upload-{letter * 16}.part" for letter in "ab")
    left.write_bytes(b"x")
    lock = take(living)
    assert lock is not None
    upload(board, "rows.jsonl")
    os.close(lock)
    assert not left.exists() and living.exists()
    assert [one["name"] for one in board.get("/api/data")["files"]] == ["rows.jsonl"]


def test_a_file_that_a_live_run_reads_stays(board, home):
    upload(board, "rows.jsonl")
    run, _ = make_run(home, "running")
    plan = {"argv": ["true"], "environment": [], "files": [{"path": str(home / "data" / "rows.jsonl")}]}
    write_json(run.plan_json, plan)
    lock = take(run.lock)
    assert lock is not None
    try:
        assert board.client.delete("/api/data/rows.jsonl").json()["error"]["code"] == "data_in_use"
        assert upload(board, "rows.jsonl", replace=True).status_code == 409
    finally:
        os.close(lock)
    assert board.client.delete("/api/data/rows.jsonl").status_code == 200


def test_a_link_in_the_data_folder_is_no_file_of_it(board, home):
    (home / "data").mkdir(parents=True)
    (home / "data" / "link.jsonl").symlink_to("/etc/passwd")
    assert board.get("/api/data")["files"] == []
    assert board.client.delete("/api/data/link.jsonl").status_code == 404
    assert upload(board, "link.jsonl").status_code == 409


def test_data_is_inspected_and_its_rows_are_shown(board):
    path = upload(board, "rows.jsonl").json()["file"]["path"]
    report = board.client.post("/api/data/inspect", json={"data": path, "stage": "sft"}).json()
    assert (report["kept"], report["format"]) == (2, "prompt_completion") and report["lengths"]["count"] == 2
    rows = board.client.post("/api/data/rows", json={"data": {"path": path}, "count": 1}).json()["rows"]
    assert rows[0]["completion"] == "4"
    outside = board.client.post("/api/data/rows", json={"data": "/etc/passwd"})
    assert (outside.status_code, outside.json()["error"]["code"]) == (403, "path_outside")


def test_a_file_made_to_break_parsers_breaks_a_child_and_not_the_server(board):
    deep = b'{"a": ' * 20_000 + b"1" + b"}" * 20_000 + b"\n"
    answer = upload(board, "deep.jsonl", deep)
    assert answer.status_code == 201 and answer.json()["findings"][0]["level"] == "error"
    assert board.get("/api/health") == {"ok": True}


def test_models_are_listed_with_where_they_come_from_and_go_to_the_trash(board, home):
    run, _ = make_run(home, "succeeded", name="first")
    run.model.mkdir()
    (run.model / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    (run.model / "adapter_model.safetensors").write_bytes(b"x" * 100)
    commit(run.model, 10, "")
    rows = {row["name"]: row for row in board.get("/api/models")["models"]}
    adapter, base = rows["first"], rows["smollm2-135m"]
    assert (adapter["kind"], adapter["from_run"], adapter["base"]) == ("adapter", run.id, "org/base")
    assert adapter["bytes"] > 100 and not base["deletable"]
    assert board.client.delete(f"/api/models/{base['id']}").status_code == 403
    assert board.client.delete(f"/api/models/{adapter['id']}").status_code == 200
    assert not run.model.exists() and "first" not in {
        row["name"] for row in board.get("/api/models")["models"]
    }
    assert board.client.delete(f"/api/models/{adapter['id']}").status_code == 404
    assert board.client.delete("/api/models/..%2f..").status_code in (404, 422)
