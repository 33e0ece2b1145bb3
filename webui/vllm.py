"""vLLM as the one who answers: started on a port of its own with a key of its own, reached through our guard only.

Its command line is that of vLLM 0.31; nobody has run it here yet, for want of a GPU. What stands in front of it (the
guard, the fields that are refused by name) is the same as before our own worker.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson

from core.chat.openai import Asked
from core.chat.speakers import Speaker
from core.job.environments import environment
from core.runs.process import environment as child_environment
from core.runs.storage import tail
from data.errors import FactoryError, Finding, refuse
from webui.settings import listen

PATIENCE = 900.0
"""Seconds that vLLM gets to load a model and compile for it."""
Json = dict[str, Any]


def program(home: Path) -> str:
    """The vllm command: of its environment, else on the path. Raises FactoryError naming the command that brings it."""
    own = environment("vllm").folder(home) / "bin" / "vllm"
    found = str(own) if own.is_file() else shutil.which("vllm")
    if found is None:
        text = "The backend vllm is not installed; run: factory env install vllm, or leave --backend out."
        raise refuse("backend_missing", text, value="vllm")
    return found


def command(vllm: str, speaker: Speaker, folder: Path, name: str, port: int) -> list[str]:
    """The argument list that serves a speaker's weights, its adapter beside them, on a loopback port."""
    if speaker.start is not None or len(speaker.adapters) > 1:
        text = f"vLLM cannot wear the adapters of {speaker.title}; export it as merged and serve that folder."
        raise refuse("backend_cannot", text, value=speaker.key)
    base = f"{name}-base" if speaker.adapters else name
    made = [
        vllm,
        "serve",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--served-model-name",
        base,
    ]
    if speaker.tokenizer is not None:
        made += ["--tokenizer", speaker.tokenizer]
    if speaker.adapters:
        made += ["--enable-lora", "--max-lora-rank", "256", "--lora-modules", f"{name}={speaker.adapters[0]}"]
    return made


class Upstream:
    """Another server of the same API, asked with the model forced and the fields mapped."""

    def __init__(self, address: str, key: str, name: str) -> None:
        self._name = name
        self._client = httpx.AsyncClient(
            base_url=address,
            headers={"authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(600, connect=5),
        )

    async def whole(self, asked: Asked, id: str, body: Json) -> Json:
        """A completion. Raises FactoryError."""
        try:
            answer = await self._client.post("/v1/chat/completions", json=self._body(asked, body))
        except httpx.HTTPError as problem:
            raise _gone(problem) from problem
        if answer.status_code != 200:
            raise _said(answer.content)
        return {**answer.json(), "id": id, "model": self._name}

    async def stream(self, asked: Asked, id: str, body: Json) -> AsyncIterator[Json]:
        """Its chunks. Raises FactoryError. Leaving it closes the connection, which ends the answer there."""
        sent = self._body(asked, body) | {"stream": True, "stream_options": {"include_usage": asked.usage}}
        try:
            async with self._client.stream("POST", "/v1/chat/completions", json=sent) as answer:
                if answer.status_code != 200:
                    raise _said(await answer.aread())
                async for line in answer.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield {**orjson.loads(line[6:]), "id": id, "model": self._name}
        except httpx.HTTPError as problem:
            raise _gone(problem) from problem

    async def close(self) -> None:
        """Close the connections to it."""
        await self._client.aclose()

    def _body(self, asked: Asked, body: Json) -> Json:
        settings = {key: value for key, value in asked.settings.items() if key != "long"}
        return {"model": self._name, "messages": asked.messages, **settings}


class Vllm(Upstream):
    """vLLM, started and waited for. Its process ends with ours."""

    def __init__(self, home: Path, speaker: Speaker, name: str) -> None:
        from core.job.models import locate

        vllm = program(home)
        folder = locate(speaker.name, home, revision=speaker.revision).folder
        if folder is None:
            text = (
                f"{speaker.name!r} is not here as files; talk to it once with factory chat, which unpacks it."
            )
            raise refuse("model_not_here", text, value=speaker.name)
        with listen("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        key = secrets.token_urlsafe(24)
        log = home / "cache" / "chat" / "vllm.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        allowed = child_environment(os.environ, ("CUDA_VISIBLE_DEVICES",), (), home) | {"VLLM_API_KEY": key}
        with log.open("wb") as words:
            self._process = subprocess.Popen(
                command(vllm, speaker, folder, name, port),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=allowed,
                start_new_session=True,
            )
        atexit.register(self._process.kill)
        super().__init__(f"http://127.0.0.1:{port}", key, name)
        self._wait(f"http://127.0.0.1:{port}/health", log)

    def _wait(self, address: str, log: Path) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                words = [line.strip() for line in tail(log, 20).splitlines() if line.strip()]
                text = f"vLLM ended while it started ({(words or ['without a word'])[-1][:200]}); {log} has the rest."
                raise refuse("backend_failed", text, value="vllm")
            try:
                if httpx.get(address, timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
        self._process.kill()
        raise refuse(
            "backend_slow", f"vLLM did not answer in {PATIENCE / 60:.0f} minutes; {log} says how far it came."
        )


def _said(content: bytes) -> FactoryError:
    try:
        told = orjson.loads(content).get("error", {})
        text, code = str(told.get("message") or "no reason"), str(told.get("code") or "backend_refused")
    except (orjson.JSONDecodeError, AttributeError):
        text, code = "no reason", "backend_refused"
    return FactoryError(Finding(code, text))


def _gone(problem: Exception) -> FactoryError:
    text = f"The server behind this one does not answer ({type(problem).__name__}); start it again."
    return FactoryError(Finding("chat_ended", text))
