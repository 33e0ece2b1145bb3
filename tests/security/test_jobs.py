"""What a job from the browser can not do: name a shell, a file, code, a pickle or an address that nobody listed."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SMALL = "model: smollm2-135m\nstage: sft\ndata: data/samples/persona.jsonl\n"


class Canary:
    """A listener that counts who calls."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.calls = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            connection.close()

    def close(self) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def canary() -> Iterator[Canary]:
    """A listener nobody may call."""
    made = Canary()
    yield made
    made.close()


@pytest.mark.parametrize(
    "name", ["x;touch PWN", "$(id)", "`id`", "--help", "../../x", "a\nb", "x" * 65, "-rf", "a/b"]
)
def test_a_run_name_is_never_words_of_a_shell(board, name):
    assert board.refused(
        json.dumps(
            {"model": "smollm2-135m", "stage": "sft", "data": "data/samples/persona.jsonl", "name": name}
        )
    )
    assert not list(board.home.parent.rglob("PWN"))


@pytest.mark.parametrize(
    "line",
    ["trust_remote_code: true", "hub_token: hf_x", "resume_from: /tmp/x", "output_dir: /tmp/x", "extra_args: [--x]",
     "deepspeed: /tmp/x.json", "train: {output_dir: /tmp/x}", "model: {name: smollm2-135m, trust_remote_code: true}",
     "train: {report_to: x}", "env: {LD_PRELOAD: /tmp/x.so}", "argv: [sh]", "engine: {name: trl, command: sh}"],
)  # fmt: skip
def test_there_is_no_field_for_code_paths_or_secrets(board, line):
    kept = [one for one in SMALL.splitlines() if not line.startswith(one.split(":")[0] + ":")]
    found = board.refused("\n".join([*kept, line]) + "\n")
    assert "unknown_field" in found


@pytest.mark.parametrize("reward", ["os.system", "../x", "a.b.c", "{name: file, script: ../../x}",
                                    "{name: file, script: /etc/x.py}",
                                    "{name: file, script: os.system}", "{name: code, code: import os}"])  # fmt: skip
def test_a_reward_is_a_built_in_name_or_a_file_of_the_operators_folder(board, reward):
    assert board.refused(
        f"model: smollm2-135m\nstage: grpo\ndata: data/samples/maths.jsonl\nrewards: [{reward}]\n"
    )


def test_a_judge_that_the_operator_did_not_list_is_not_called(board, canary):
    for host in (f"127.0.0.1:{canary.port}", f"localhost:{canary.port}"):
        reward = f"{{name: judge, url: 'http://{host}/v1', judge_model: x, key_env: JUDGE_API_KEY}}"
        found = board.refused(
            f"model: smollm2-135m\nstage: grpo\ndata: data/samples/maths.jsonl\nrewards: [{reward}]\n"
        )
        assert "judge_not_listed" in found
    assert canary.calls == 0


def test_an_address_in_the_data_is_not_fetched(board, canary):
    here = f"http://127.0.0.1:{canary.port}/x.png"
    rows = [
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
                {"role": "assistant", "content": "x"},
            ]
        }
        for url in (here, "file:///etc/passwd", "/etc/passwd")
    ] + [{"prompt": here, "completion": "x", "images": [here]}]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    path = board.client.post("/api/data", params={"name": "images.jsonl"}, content=content).json()["file"][
        "path"
    ]
    for route in ("inspect", "rows"):
        answer = board.client.post(f"/api/data/{route}", json={"data": path, "stage": "sft"})
        assert answer.status_code in (200, 422) and "root:" not in answer.text
    for data in (here, f"hub:{here}", "http://169.254.169.254/latest"):
        assert board.client.post("/api/data/inspect", json={"data": data}).status_code in (403, 422)
    assert canary.calls == 0


def folder(board: Any, name: str, config: Any = None) -> Path:
    """A folder that looks like a model, where the operator keeps models."""
    made: Path = board.home / "models" / name
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    (made / "tokenizer.json").write_text("{}")
    return made


def train_on(model: Path) -> str:
    """A job that starts from this folder."""
    return json.dumps({"model": str(model), "stage": "sft", "data": "data/samples/persona.jsonl"})


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"model_type": "llama", "auto_map": {"AutoModel": "modeling_x.X"}}, "model_wants_code"),
        ({"model_type": "llama\nimport os;os.system('touch PWN')"}, "model_config_unsafe"),
        ({"model_type": "llama", "text_config": {"model_type": "x y"}}, "model_config_unsafe"),
        ({"model_type": "llama", "architectures": ["X()"]}, "model_config_unsafe"),
    ],
)
def test_a_models_config_asks_for_no_code_and_injects_none(board, tmp_path, config, code):
    model = folder(board, tmp_path.name, config)
    (model / "modeling_x.py").write_text("open('PWN', 'w')\n")
    (model / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    assert code in board.refused(train_on(model))
    assert not list(board.home.parent.rglob("PWN"))


PICKLES = (
    *("pytorch_model.bin", "adapter_model.bin", "value_head.bin", "optimizer.pt", "rng_state.pth"),
    *("training_args.bin", "model.ckpt"),
)


class Bomb:
    """A pickle that leaves a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


@pytest.mark.parametrize("name", PICKLES)
def test_pickled_weights_are_refused_and_never_opened(board, tmp_path, name):
    canary = tmp_path / "PWN"
    model = folder(board, f"{tmp_path.name}-{name}")
    (model / name).write_bytes(pickle.dumps(Bomb(canary)))
    assert board.refused(train_on(model)) & {"model_weights_pickled", "model_weights_missing"}
    assert not canary.exists()
    pickle.loads((model / name).read_bytes()).close()
    assert canary.exists(), "the canary must sing when the pickle is opened"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04.",
        b"\xff" * 8 + b"{}",
        b"\x02\0\0\0\0\0\0\0{",
        b'\x40\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[9]}}',
    ],
)
def test_a_safetensors_file_that_is_none_is_refused(board, tmp_path, content):
    model = folder(board, tmp_path.name)
    (model / "model.safetensors").write_bytes(content)
    assert "model_weights_broken" in board.refused(train_on(model))


def test_uploads_lie_where_nothing_is_imported(board):
    board.client.post("/api/data", params={"name": "sitecustomize.jsonl"}, content=b'{"text": "x"}\n')
    for name in ("sitecustomize.py", "core.py", "json.py", "reward.py", "x.pth", "x.so", "conftest.py"):
        answer = board.client.post("/api/data", params={"name": name}, content=b"open('PWN', 'w')\n")
        assert answer.status_code == 422, name
    assert {path.suffix for path in (board.home / "data").iterdir()} == {".jsonl"}
    assert not any(path.stat().st_mode & 0o111 for path in (board.home / "data").iterdir())


IDS = ".. %2e%2e ..%2f..%2f..%2fetc%2fpasswd ..%5c..%5cx C:%5cx ok%0a a%00b .hidden %252e Ärger".split()


@pytest.mark.parametrize("id", [*IDS, "x" * 300])
def test_no_path_parameter_leads_out(board, id):
    spec = board.client.get("/api/openapi.json").json()["paths"]
    for path, methods in spec.items():
        if "{" not in path or path.endswith("/stream"):
            continue
        address = path.replace("{id}", id).replace("{name}", id if "{id}" not in path else "log")
        for method in methods:
            answer = board.client.request(method, address, json={} if method != "get" else None)
            assert answer.status_code in (400, 404, 405, 422) or not address.startswith(
                "/api/runs/" + id[:1]
            ), (address, answer.text)
            assert answer.status_code < 500 and "root:" not in answer.text, (
                method,
                address,
                answer.text[:200],
            )
