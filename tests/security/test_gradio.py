"""Gradio's own doors: its file reading (finding F1), its uploads, proxies and histories are shut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.security.conftest import ROOT

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
import httpx
from fastapi import FastAPI
from webui.board import blocks, mount_arguments
import gradio as gr

secret = sys.argv[1]
file = {"path": secret, "meta": {"_type": "gradio.FileData"}}
KINDS = {
    "file": (gr.File, file),
    "image": (gr.Image, file),
    "chatbot": (gr.Chatbot, [{"role": "user", "content": [{"type": "file", "file": file}]}]),
    "multimodal": (gr.MultimodalTextbox, {"text": "", "files": [file]}),
}

def cached():
    cache = Path(os.environ["GRADIO_TEMP_DIR"])
    return {str(path) for path in cache.rglob("*") if path.is_file()} if cache.is_dir() else set()

async def ask(kind, launched):
    component, payload = KINDS[kind]
    before = cached()
    with gr.Blocks(analytics_enabled=False) as demo:
        given, shown = component(), gr.JSON()
        gr.Button().click(lambda value: str(value), given, shown, api_name="echo")
    demo.has_launched = launched
    app = gr.mount_gradio_app(FastAPI(), demo, path="/", **{**mount_arguments(), "head": "", "theme": None})
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            begun = await client.post("/gradio_api/call/echo", json={"data": [payload]})
            told = begun.text
            if begun.status_code == 200:
                told += (await client.get("/gradio_api/call/echo/" + begun.json()["event_id"])).text
            copies = sorted(cached() - before)
            read = [(await client.get("/gradio_api/file=" + path)).text for path in copies]
    return {"told": told, "copies": copies, "read": read}

async def everything():
    found = {kind: await ask(kind, True) for kind in KINDS}
    found["as mounted"] = await ask("file", False)
    found["ours"] = blocks(Path("/nowhere")).has_launched
    print(json.dumps(found))

asyncio.run(everything())
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes of asking a mounted Gradio app for a file of the server, through each component that takes files."""
    folder = tmp_path_factory.mktemp("f1")
    secret = folder / "secret.png"
    secret.write_text("root:x:0:0 the secret")
    environment = {**os.environ, "GRADIO_TEMP_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(secret)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("kind", ["file", "image", "chatbot", "multimodal"])
def test_f1_no_component_copies_a_file_of_the_server(told, kind):
    answer = told[kind]
    assert answer["copies"] == [] and "the secret" not in str(answer) and "error" in answer["told"]
    assert told["ours"] is True


def test_f1_would_be_seen(told):
    assert "the secret" in str(told["as mounted"]["read"]), "Gradio has closed the hole; this control can go"


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "%252e%252e/etc/passwd", "/etc/passwd%00.png",
     "/proc/self/environ", "{home}/.board-token", "{home}/home.json", "file:///etc/passwd", "http://127.0.0.1/"],
)  # fmt: skip
def test_gradios_file_route_gives_out_nothing(board, path):
    for route in ("/gradio_api/file=", "/gradio_api/file/"):
        answer = board.client.get(route + path.format(home=board.home))
        assert answer.status_code in (400, 403, 404), f"{answer.status_code} {answer.text[:100]}"
        assert "root:" not in answer.text and board.token not in answer.text


def test_gradios_proxy_fetches_nothing(board):
    for target in ("http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data", "https://x.hf.space/"):
        assert board.client.get(f"/gradio_api/proxy={target}").status_code in (400, 403, 404)


def test_gradios_upload_is_shut(board):
    assert (
        board.client.post("/gradio_api/upload", files={"files": ("x.html", b"<script>")}).status_code == 403
    )


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/runs",
        "/monitoring",
        "/monitoring/summary",
        "/gradio_api/mcp/",
        "/gradio_api/mcp/schema",
        "/openapi.json",
        "/docs",
        "/redoc",
    ],
)
def test_run_history_monitoring_mcp_and_open_documents_are_off(board, path):
    answer = board.client.get(path)
    assert answer.status_code in (403, 404, 405), f"{path}: {answer.status_code} {answer.text[:200]}"


def test_gradio_reports_nothing_renders_nothing_on_the_server_and_offers_no_public_function(board):
    config = board.client.get("/config").json()
    assert (
        config["analytics_enabled"] is False
        and not config.get("is_space")
        and not config.get("enable_monitoring")
    )
    assert [one["api_name"] for one in config["dependencies"] if one.get("api_visibility") == "public"] == []
    page = board.client.get("/").text
    assert "https://fonts" not in page and "unpkg" not in page and "jsdelivr" not in page


def test_what_gradio_reads_from_the_environment_is_overruled(tmp_path):
    program = (
        "import os; from pathlib import Path; from webui.server import build; from webui.settings import Settings\n"
        "build(Settings(home=Path('/nowhere')))\n"
        "import gradio.utils\n"
        "print(*(os.environ['GRADIO_' + one] for one in ('ANALYTICS_ENABLED', 'SSR_MODE', 'MCP_SERVER')))\n"
    )
    environment = {
        **os.environ,
        "GRADIO_ANALYTICS_ENABLED": "True",
        "GRADIO_SSR_MODE": "True",
        "GRADIO_MCP_SERVER": "True",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", "False"]
