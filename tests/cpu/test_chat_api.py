"""Chat over REST: a real server on a real port, answers as server-sent events, clients that go away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cpu.conftest import work_of
from tests.unit.webui.conftest import Board
from tests.zygote import Zygote
from webui.settings import Settings

ASKED = [{"role": "user", "content": "What is 3 and 3?"}]


def save_tiny(zygote: Zygote, folder: Path) -> str:
    return str(zygote.call("tests.tiny:save_tiny_at", folder=str(folder)))


@pytest.fixture(scope="module")
def place(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("chat api") / "home"
    save_tiny(zygote, home / "models" / "tiny")
    slow = str(home / "models" / "slow")
    zygote.call("tests.tiny:save_tiny_at", folder=slow, layers=12, hidden=256)
    return home


@pytest.fixture(scope="module")
def board(place: Path) -> Iterator[Board]:
    made = Board(Settings(home=place, port=0, token="test-token-0123456789"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(board: Board) -> Iterator[httpx.Client]:
    headers = {"authorization": "Bearer test-token-0123456789"}
    with httpx.Client(
        base_url=f"http://127.0.0.1:{board.port}/api/chat", headers=headers, timeout=120
    ) as made:
        yield made


@pytest.fixture
def key(place: Path) -> str:
    return f"model:{place / 'models' / 'tiny'}"


def until_idle(pool: Any, worker: psutil.Process) -> float:
    """Wait until nothing is being made any more; the CPU-seconds the worker has taken by then."""
    deadline = time.monotonic() + 120
    while any(one["busy"] for one in pool.loaded()):
        assert time.monotonic() < deadline, pool.loaded()
        time.sleep(0.02)
    return work_of(worker)


def events(client: httpx.Client, key: str, **more: Any) -> list[dict[str, Any]]:
    asked = {"speaker": key, "messages": ASKED, "settings": {"max_tokens": 12, "seed": 3}, **more}
    with client.stream("POST", "/answer", json=asked) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in answer.iter_lines() if line]


def test_an_answer_streams_and_the_memory_is_told_and_freed(client: httpx.Client, key: str) -> None:
    assert {one["key"] for one in client.get("/speakers").json()["speakers"]} >= {key}
    told = events(client, key)
    assert [told[0]["event"], told[1]["event"], told[-1]["event"]] == ["loading", "start", "done"]
    assert "".join(one["text"] for one in told if one["event"] == "text") == told[-1]["text"]
    assert events(client, key)[-1]["text"] == told[-1]["text"]
    state = client.get("/state").json()
    assert len(state["loaded"]) == 1 and state["loaded"][0]["memory"] > 1 << 27
    assert {one["name"]: one["maximum"] for one in state["settings"] if "maximum" in one}["temperature"] == 5
    assert client.post("/load", json={"speaker": key}).json()["context"] == 512
    shown = client.post("/render", json={"speaker": key, "messages": ASKED}).json()
    assert shown["text"].startswith("<|im_start|>user") and shown["count"] == len(shown["tokens"])
    assert client.post("/unload", json={}).json() == {"unloaded": 1}
    assert client.get("/state").json()["loaded"] == []


def test_a_stop_ends_an_answer_with_what_was_said_and_going_away_frees_the_model(
    board: Board, client: httpx.Client, place: Path
) -> None:
    asked = {
        "speaker": f"model:{place / 'models' / 'slow'}",
        "messages": ASKED,
        "settings": {"max_tokens": 400, "temperature": 0},  # without dice it talks on and on
    }
    pool = board.server.config.app.app.state.chat.pool  # type: ignore[union-attr]
    client.post("/load", json={"speaker": asked["speaker"]})
    (pid,) = [one.pid for one in pool._workers.values() if asked["speaker"] in one.known]
    worker = psutil.Process(pid)
    before = work_of(worker)
    assert '"tokens":400' in client.post("/answer", json=asked).text
    whole = work_of(worker) - before
    with client.stream("POST", "/answer", json=asked) as answer:
        lines = answer.iter_lines()
        id = next(
            event["id"] for line in lines if line and (event := json.loads(line[6:]))["event"] == "start"
        )
        assert client.post("/stop", json={"id": id}).json() == {"stopped": True}
        last = [json.loads(line[6:]) for line in lines if line][-1]
        assert (last["event"], last["reason"]) == ("done", "stopped") and last["tokens"] < 400
    assert client.post("/stop", json={"id": id}).json() == {"stopped": False}
    before = work_of(worker)
    with client.stream("POST", "/answer", json=asked) as answer:
        next(answer.iter_lines())
    assert until_idle(pool, worker) - before < whole / 2, "an answer that nobody hears is not made to its end"


def test_feedback_becomes_rows(client: httpx.Client, place: Path) -> None:
    rating = {"messages": ASKED, "answer": "It is 6."}
    for kind, other in (("good", None), ("bad", None), ("prefer", "It is 7."), ("edit", "6.")):
        answer = client.post("/feedback", json={"kind": kind, **rating, "other": other})
        assert answer.status_code == 201 and answer.json()["saved"][0]["rows"] >= 1
    assert {path.name for path in (place / "data").iterdir()} == {
        "chat-feedback.jsonl", "chat-preferences.jsonl", "chat-edited.jsonl",
    }  # fmt: skip
    wrong = client.post("/feedback", json={"kind": "prefer", **rating})
    assert wrong.status_code == 422 and wrong.json()["error"]["field"] == "other"


def test_what_cannot_be_is_refused_in_the_one_form(
    zygote: Zygote, client: httpx.Client, key: str, place: Path, tmp_path: Path
) -> None:
    outside = save_tiny(zygote, tmp_path / "outside")
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"speaker": f"model:{outside}"}, 403, "path_outside"),
        ({"speaker": "model:../../../etc"}, 403, "path_outside"),
        ({"speaker": "model:/etc"}, 403, "path_outside"),
        ({"speaker": "run:nobody"}, 404, "run_not_found"),
        ({"speaker": "x"}, 404, "speaker_unknown"),
        ({"speaker": key, "settings": {"temperature": 99}}, 422, "setting_invalid"),
        ({"speaker": key, "messages": [{"role": "boss", "content": "x"}]}, 422, "setting_invalid"),
        ({"speaker": key, "messages": []}, 422, "bad_request"),
        ({"speaker": key, "more": 1}, 422, "bad_request"),
    ]
    for change, status, code in cases:
        answer = client.post("/answer", json={"messages": ASKED, "settings": {}, **change})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), change
    link = place / "models" / "link"
    link.symlink_to(outside)
    assert client.post("/load", json={"speaker": f"model:{link}"}).status_code == 403
    long = events(client, key, messages=[{"role": "user", "content": "x " * 3000}])
    assert long[-1]["event"] == "refused" and long[-1]["findings"][0]["code"] == "prompt_too_long"


def test_nothing_is_left_when_the_board_ends(zygote: Zygote, tmp_path: Path) -> None:
    save_tiny(zygote, tmp_path / "models" / "tiny")
    board = Board(Settings(home=tmp_path, port=0, token="test-token-0123456789"))
    try:
        pool = board.server.config.app.app.state.chat.pool  # type: ignore[union-attr]
        from core.chat.speakers import by_key

        pid = pool.load(by_key(tmp_path, f"model:{tmp_path / 'models' / 'tiny'}")).pid
        assert psutil.pid_exists(pid)
    finally:
        board.close()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline, psutil.Process(pid)
        time.sleep(0.02)
