"""Row 18: the board needs no internet. It is started where there is none, and everything it shows is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security.conftest import ROOT

PROGRAM = """
import fcntl, json, re, socket, struct, sys, threading
from pathlib import Path

# Bring the loopback up: in a new network namespace it is all there is, and it is down.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
asked = []
real = socket.getaddrinfo
def resolve(host, *rest, **named):
    asked.append(str(host))
    return real(host, *rest, **named)
socket.getaddrinfo = resolve
connected = []
connect = socket.socket.connect
def to(self, address):
    connected.append(str(address))
    return connect(self, address)
socket.socket.connect = to

import httpx, time
from webui.settings import Settings, listen
from webui.server import serve
import webui.server as server
import uvicorn
listening = listen("127.0.0.1", 0)
port = listening.getsockname()[1]
ready = threading.Event()
uvicorn.Server.install_signal_handlers = lambda self: None
kept = []
made = server.Server.__init__
def keep(self, *words):
    kept.append(self)
    made(self, *words)
server.Server.__init__ = keep
import contextlib
server.Server.capture_signals = lambda self: contextlib.nullcontext()
thread = threading.Thread(target=serve, args=(Settings(home=Path(sys.argv[1]), port=port), listening, ready.set))
thread.start()
assert ready.wait(120)
here = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
found = {}
linked = set()
for path in ("/", "/new", "/run", "/compare", "/chat", "/data", "/models", "/config", "/api/runs", "/api/machine",
             "/api/recipes",
             "/api/models", "/api/data", "/api/schema", "/theme.css", "/gradio_api/startup-events"):
    answer = here.get(path)
    found[path] = answer.status_code
    linked |= set(re.findall(r'(?:src|href)="(https?://[^"]+)"', answer.text))
job = "model: smollm2-135m\\nstage: sft\\ndata: data/samples/persona.jsonl\\n"
found["check"] = here.post("/api/jobs/check", json={"yaml": job}).json()["ok"]
found["plan"] = here.post("/api/jobs/plan", json={"yaml": job}).json()["plan"] is not None
kept[0].should_exit = True
thread.join(30)
foreign = sorted({one for one in [*asked, *connected]
                  if "127.0.0.1" not in one and "None" not in one and "'/" not in one
                  and not one.startswith("/")})
print(json.dumps({"found": found, "foreign": foreign, "linked": sorted(linked)}))
"""


@pytest.mark.root
def test_the_board_works_where_there_is_only_loopback_and_asks_for_nothing_else(tmp_path):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FACTORY_SLOTS": str(tmp_path / "slots"),
        "HF_HUB_OFFLINE": "0",
    }
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", PROGRAM, str(tmp_path / "home")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert {path: status for path, status in told["found"].items() if status not in (200, True)} == {}
    assert told["foreign"] == []


def test_the_first_page_brings_no_training_library(board):
    """The board of these tests has answered pages for a while; a fresh one is asked for its first, too."""
    maps = Path(f"/proc/{board.process.pid}/maps").read_text()
    assert board.client.get("/").status_code == 200
    assert "libtorch" not in maps and "/transformers/" not in maps
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from webui.server import build\n"
        "from webui.settings import Settings\n"
        "import asyncio, httpx\n"
        "async def ask():\n"
        "    app = build(Settings(home=Path(sys.argv[1])))\n"
        "    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://localhost') as client:\n"
        "        return (await client.get('/')).status_code\n"
        "status = asyncio.run(ask())\n"
        "heavy = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'accelerate'} & set(sys.modules)\n"
        "print(status, sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(board.home)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", "[]"]
