"""`factory serve`, asked by real clients over a real port: the OpenAI package, streams, tokens, clients that go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.cpu.conftest import work_of
from tests.loops import run_async

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-for-tests-0123"
ASKED = [{"role": "user", "content": "What is 3 and 3?"}]


class Served:
    """The command as a process of its own."""

    def __init__(self, home: Path, model: str) -> None:
        environment = {**os.environ, "FACTORY_HOME": str(home), "FACTORY_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "core.cli", "serve", model, "--port", "0"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = [self.process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.said[1])
        assert found, (self.said, self.process.poll(), self.process.stderr and self.process.stderr.read())
        self.port = int(found[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str = TOKEN) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key=token, max_retries=0, timeout=60)

    def worker(self) -> Any:
        import psutil

        (child,) = psutil.Process(self.process.pid).children()
        return child


@pytest.fixture(scope="module")
def served(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("serve home"), tiny)
    yield made
    made.process.terminate()
    assert made.process.wait(timeout=20) in (0, -15)
    for stream in (made.process.stdout, made.process.stderr):
        assert stream is not None
        stream.close()


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with served.client() as made:
        yield made


def ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "any", "messages": ASKED, "seed": 7, "max_tokens": 16, **more}
    )


def test_it_says_how_to_reach_it_and_lists_the_one_model(
    served: Served, client: openai.OpenAI, tiny: str
) -> None:
    assert served.said[2] == f"export OPENAI_API_KEY={TOKEN}\n"
    assert [one.id for one in client.models.list()] == [tiny]
    assert client.models.retrieve(tiny).owned_by == "factory"
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt'"):
        client.models.retrieve("gpt")


def test_an_answer_whole_and_streamed_is_the_same_with_the_same_seed(
    client: openai.OpenAI, tiny: str
) -> None:
    whole = ask(client)
    choice = whole.choices[0]
    assert whole.model == tiny, "the model is forced"
    assert choice.message.content and choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == choice.message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == choice.finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(one.usage is None for one in ask(client, stream=True))
    assert ask(client, seed=8).choices[0].message.content != choice.message.content


def test_what_it_serves_it_obeys(client: openai.OpenAI) -> None:
    short = ask(client, max_tokens=openai.omit, max_completion_tokens=3, temperature=0)
    assert (short.usage.completion_tokens, short.choices[0].finish_reason) == (3, "length")
    warm = ask(client, temperature=1.5, max_tokens=40).choices[0].message.content
    stop = warm[4:6]
    cut = ask(client, temperature=1.5, max_tokens=40, stop=stop).choices[0]
    assert (cut.message.content, cut.finish_reason) == (warm[: warm.index(stop)], "stop")
    parts = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "3 and 3?"}],
        }
    ]
    same = ask(client, messages=[{"role": "developer", "content": "x"}, *parts])
    assert (
        same.choices[0].message.content
        == ask(client, messages=[{"role": "system", "content": "x"}, *ASKED]).choices[0].message.content
    )
    for harmless in (
        {"n": 1},
        {"user": "me"},
        {"logprobs": False},
        {"presence_penalty": 0},
        {"response_format": {"type": "text"}},
    ):
        assert ask(client, max_tokens=2, **harmless).choices


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2), ("logprobs", True), ("top_logprobs", 3), ("presence_penalty", 0.5), ("frequency_penalty", 1),
        ("logit_bias", {"5": 1}), ("response_format", {"type": "json_object"}), ("tool_choice", "required"),
        ("tools", [{"type": "function", "function": {"name": "x"}}]), ("reasoning_effort", "low"), ("made_up", 1),
    ],
)  # fmt: skip
def test_what_it_does_not_serve_it_refuses_by_name(client: openai.OpenAI, field: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as told:
        ask(client, extra_body={field: value})
    assert told.value.param == field and field in told.value.message
    assert told.value.type == "invalid_request_error"


def test_bad_input_is_one_error_in_the_shape_clients_know(served: Served, client: openai.OpenAI) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"temperature": 9}, "temperature"), ({"max_tokens": 0}, "max_tokens"), ({"messages": []}, "at least one turn"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "role"), ({"stop": ["x"] * 20}, "stop"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
        ({"messages": [{"role": "user", "content": "x " * 3000}]}, "512"),
    ]  # fmt: skip
    for change, words in cases:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match=words):
                ask(client, stream=stream, **change)
    with pytest.raises(openai.BadRequestError) as told:
        ask(client, messages=[{"role": "user", "content": "x " * 3000}])
    assert told.value.code == "context_length_exceeded"
    headers = {"authorization": f"Bearer {TOKEN}"}
    for content in (b"{", b"[]", b'"x"', b"\xff", b"{}"):
        answer = httpx.post(f"{served.address}/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 400 and answer.json()["error"]["message"]
    assert httpx.get(f"{served.address}/v1/embeddings", headers=headers).status_code == 404


def test_without_the_token_from_another_host_or_page_nothing_is_told(served: Served) -> None:
    with served.client("wrong-token-0123456789") as stranger:
        for call in (stranger.models.list, lambda: ask(stranger)):
            with pytest.raises(openai.AuthenticationError):
                call()
    url = f"{served.address}/v1/models"
    good = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=good | {"host": "evil.example"}).status_code == 403
    assert httpx.get(url, headers=good | {"origin": "http://evil.example"}).status_code == 403
    assert httpx.get(url, headers=good).status_code == 200


def until_idle(worker: Any) -> float:
    """Wait until a process rests; the CPU-seconds it has taken by then."""
    seen = [work_of(worker)]
    while len(seen) < 6 or seen[-1] > seen[-6]:
        time.sleep(0.1)
        seen.append(work_of(worker))
    return seen[-1]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_the_model_at_once(
    served: Served, client: openai.OpenAI, stream: bool
) -> None:
    body = {
        "model": "x",
        "messages": ASKED,
        "max_tokens": 450,
        "temperature": 0,  # without dice it talks on and on
        "stream": stream,
    }
    headers = {"authorization": f"Bearer {TOKEN}"}
    worker = served.worker()
    before = work_of(worker)
    told = httpx.post(
        f"{served.address}/v1/chat/completions", json={**body, "stream": False}, headers=headers
    )
    assert told.json()["usage"]["completion_tokens"] == 450
    whole, before = until_idle(worker) - before, work_of(worker)
    with (
        httpx.Client(headers=headers) as one,
        pytest.raises(httpx.ReadTimeout if not stream else ZeroDivisionError),
    ):
        url = f"{served.address}/v1/chat/completions"
        if stream:
            with one.stream("POST", url, json=body) as answer:
                next(answer.iter_lines())
                raise ZeroDivisionError
        one.post(url, json=body, timeout=httpx.Timeout(60, read=0.15))
    assert until_idle(worker) - before < whole / 2, "an answer that nobody hears is not made to its end"
    assert ask(client, max_tokens=2).choices


def test_several_clients_are_answered_at_once_each_as_if_alone(client: openai.OpenAI) -> None:
    from concurrent.futures import ThreadPoolExecutor

    alone = [ask(client, seed=seed, temperature=1.0).choices[0].message.content for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda seed: ask(client, seed=seed, temperature=1.0).choices[0].message.content, range(4)
            )
        )
    assert together == alone


def test_another_server_of_this_api_can_stand_behind_it(served: Served, tiny: str) -> None:
    """What `--backend vllm` puts in front of vLLM, here in front of our own server."""

    from core.chat.openai import read
    from webui.vllm import Upstream

    async def through() -> tuple[dict[str, Any], list[dict[str, Any]], str]:
        upstream = Upstream(served.address, TOKEN, tiny)
        body = {"model": "m", "messages": ASKED, "seed": 7, "max_completion_tokens": 12}
        whole = await upstream.whole(read(body), "chatcmpl-1", body)
        asked = read({**body, "stream": True, "stream_options": {"include_usage": True}})
        chunks = [one async for one in upstream.stream(asked, "chatcmpl-2", body)]
        long = {**body, "messages": [{"role": "user", "content": "x " * 3000}]}
        try:
            await upstream.whole(read(long), "x", long)
        except Exception as problem:
            return whole, chunks, str(problem)
        finally:
            await upstream.close()
        raise AssertionError("a prompt that is too long was answered")

    whole, chunks, told = run_async(through())
    text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
    assert text == whole["choices"][0]["message"]["content"] and whole["usage"]["completion_tokens"] == 12
    assert chunks[-1]["usage"] == whole["usage"] and "512" in told


def test_vllm_that_is_not_here_is_told_with_the_command_that_brings_it(tiny: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "core.cli",
        "--home",
        str(tmp_path),
        "serve",
        tiny,
        "--port",
        "0",
        "--backend",
        "vllm",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "factory env install vllm" in done.stderr


def test_vllm_gets_an_argument_list_with_the_adapter_beside_its_base(tmp_path: Path) -> None:
    from core.chat.speakers import Speaker
    from data.errors import FactoryError
    from webui.vllm import command

    speaker = Speaker("run:x", "x", "base", adapters=("/a b/model",), tokenizer="/a b/model")
    made = command("vllm", speaker, Path("/models/base"), "x", 5)
    assert made[:4] == ["vllm", "serve", "/models/base", "--host"] and "x=/a b/model" in made
    assert made[made.index("--host") + 1] == "127.0.0.1"
    with pytest.raises(FactoryError, match="merged"):
        command("vllm", Speaker("run:x", "x", "base", adapters=("a",), start="b"), Path("/b"), "x", 5)


def test_no_token_needs_an_address_of_this_machine(tiny: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "core.cli",
        "--home",
        str(tmp_path),
        "serve",
        tiny,
        "--host",
        "0.0.0.0",
        "--no-token",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "--no-token" in done.stderr
