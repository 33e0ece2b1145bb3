"""A real server on a real port for tests of REST and streams: guard and API, without Gradio's seconds of import."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from core.runs.folder import Run, create_run
from core.runs.journal import Journal
from core.runs.storage import write_json
from webui.guard import Guard
from webui.server import Server, build_api
from webui.settings import Settings, listen

TOKEN = "test-token-0123456789"
JOB: dict[str, Any] = {
    "schema_version": 1,
    "name": "first",
    "model": {"name": "smollm2-135m"},
    "data": {"path": "/somewhere/rows.jsonl"},
    "stage": {"name": "sft"},
    "method": {"name": "lora", "rank": 16},
    "train": {"epochs": 1.0, "learning_rate": None},
    "hardware": {"devices": None},
}
PLAN: dict[str, Any] = {"argv": ["true"], "environment": [], "steps": 10, "defaults": ["train.learning_rate"]}


class Board:
    """A running server and a client that knows its token."""

    def __init__(self, settings: Settings) -> None:
        self.listening = listen("127.0.0.1", settings.port)
        self.port = self.listening.getsockname()[1]
        self.settings = Settings(**{**vars(settings), "port": self.port})
        app = build_api(self.settings)
        self.hub = app.state.hub
        self.here = app.state.here
        config = uvicorn.Config(
            Guard(app, self.settings),
            log_level="error",
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=600,  # nothing may need it
        )
        self.server = Server(config, lambda: None, self.hub.close)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.listening]}, daemon=True
        )
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30
        )

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET that succeeds."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        """End the server. Idempotent."""
        self.client.close()
        self.hub.closing = True
        self.server.should_exit = True
        self._thread.join(120)
        assert not self._thread.is_alive()
        self.listening.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, on a machine whose queue nobody else uses."""
    monkeypatch.setenv("FACTORY_SLOTS", str(tmp_path / "slots"))
    return tmp_path / "home"


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Board]]:
    """Starts servers, and ends them."""
    boards: list[Board] = []

    def begin(**settings: Any) -> Board:
        boards.append(Board(Settings(**{"home": home, "port": 0, "token": TOKEN, **settings})))
        return boards[-1]

    yield begin
    for board in boards:
        board.close()


@pytest.fixture
def board(start: Callable[..., Board]) -> Board:
    """A server on an empty home."""
    return start()


def make_run(
    home: Path, state: str = "stopped", *, job: dict[str, Any] | None = None, **facts: Any
) -> tuple[Run, Journal]:
    """A run folder in an end state, and a writer for its events."""
    run = create_run(home, "# as written\nstage: sft\n", job or JOB, PLAN)
    record = {"version": 1, "id": run.id, "stage": "sft", "state": state, "attempt": 1, "total_steps": 10}
    record |= {"created": time.time(), "started": time.time() - 60, "ended": time.time(), **facts}
    write_json(run.state_json, record)
    journal = Journal(run.events)
    journal.append({"event": "state", "state": "queued", "attempt": 1})
    return run, journal


def metric(journal: Journal, step: int, **values: float) -> None:
    """Write the numbers of a step."""
    journal.append({"event": "metric", "step": step, "epoch": step / 10, "values": values})


def messages(lines: Iterator[str]) -> Iterator[tuple[str, str | None, Any]]:
    """(event, id, data) of a stream of server-sent events."""
    kind, id, data = "message", None, ""
    for line in lines:
        if not line:
            if data:
                yield kind, id, json.loads(data)
            kind, data = "message", ""
        elif line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            data = line[6:]
