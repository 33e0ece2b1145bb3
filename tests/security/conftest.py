"""The whole board as a process of its own, Gradio included, with secrets planted where they must not leak from."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
HF_CANARY = "hf_CANARYcanaryCANARYcanary0123456789"
KEY_CANARY = "sk-CANARYcanaryCANARYcanary9876543210"


class Board:
    """`factory board` with its token, and a client that has it."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self.home, self.log = folder / "home", folder / "board.log"
        environment = {
            **os.environ,
            "FACTORY_HOME": str(self.home),
            "FACTORY_SLOTS": str(folder / "slots"),
            "HF_TOKEN": HF_CANARY,
            "JUDGE_API_KEY": KEY_CANARY,
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        }
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "core.cli", "board", "--port", "0", *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        self.address = self._address()
        self.port = int(re.search(r":(\d+)/", self.address).group(1))  # type: ignore[union-attr]
        self.token = self.address.rpartition("token=")[2]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {self.token}"}, timeout=60
        )

    def _address(self) -> str:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            text = self.log.read_text("utf-8")
            if match := re.search(r"http://\S+(?=\s)", text):
                return match[0]
            assert self.process.poll() is None, text
            time.sleep(0.05)
        raise AssertionError(f"the board did not start: {self.log.read_text('utf-8')}")

    def refused(self, yaml: str) -> set[str]:
        """The codes of the errors that a job gets, checked and submitted alike."""
        checked = self.client.post("/api/jobs/check", json={"yaml": yaml})
        assert checked.status_code == 200, checked.text
        started = self.client.post("/api/jobs/submit", json={"yaml": yaml})
        assert started.status_code in (403, 422), started.text
        return {one["code"] for one in checked.json()["findings"] if one["level"] == "error"}

    def close(self) -> None:
        """End it."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """One board for all of these tests."""
    made = Board(tmp_path_factory.mktemp("security"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def routes() -> list[tuple[str, str]]:
    """Every (method, path) of the whole application, Gradio's among them, with ids filled in."""
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from webui.server import build\n"
        "from webui.settings import Settings\n"
        "guard = build(Settings(home=Path(sys.argv[1]), token='x' * 20))\n"
        "def walk(routes, prefix=''):\n"
        "    for one in routes:\n"
        "        path = prefix + getattr(one, 'path', '')\n"
        "        inner = getattr(getattr(one, 'app', None), 'routes', None) or (\n"
        "            getattr(one, 'routes', None) if not getattr(one, 'methods', None) else None)\n"
        "        inner = inner or getattr(getattr(one, 'original_router', None), 'routes', None)\n"
        "        if inner:\n"
        "            found.extend(walk(inner, path.rstrip('/')))\n"
        "        yield from ((method, path) for method in sorted(getattr(one, 'methods', None) or ['GET']))\n"
        "found = []\n"
        "found.extend(walk(guard.app.routes))\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "/nowhere"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return sorted({(method, re.sub(r"\{[^}]*\}", "x", path) or "/") for method, path in found})
