"""One process that has imported the training libraries and forks a child per training test.

Importing torch, transformers and trl takes seconds; a fork takes milliseconds and gives the same losses. Each child
is a process of its own: what a test breaks in it, no other test sees. `Zygote.call("tests.cpu.jobs:train", ...)`
runs a function by name in a fresh child and returns what it returns, as plain JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class ChildFailed(AssertionError):
    """A function in a child raised or the child died; holds its traceback or signal."""


class Zygote:
    """Starts the process on first use. One at a time: `call` waits for the child's answer."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="zygote-")
        address = str(Path(self._folder.name) / "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(1)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.zygote", address], cwd=CHECKOUT, env={**os.environ, **ENVIRONMENT}
        )
        self._connection: socket.socket | None = None

    def call(self, function: str, **arguments: Any) -> Any:
        """Run `module:function(**arguments)` in a fresh child; its JSON-able result, or ChildFailed."""
        if self._connection is None:
            self._listener.settimeout(600)  # importing takes seconds, or minutes on a busy machine
            self._connection, _ = self._listener.accept()
        _send(self._connection, {"function": function, "arguments": arguments})
        answer = _receive(self._connection)
        if answer is None:
            raise ChildFailed("the zygote process died")
        if "error" in answer:
            raise ChildFailed(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        self._listener.close()
        self._process.terminate()
        self._process.wait(timeout=20)
        self._folder.cleanup()


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(1 << 20)
        if not part:
            return None
        data += part
    return dict(json.loads(data))


def _serve(address: str) -> None:
    import peft  # noqa: F401 - the imports are the point
    import trl

    import core.training.language_modeling
    import core.training.measure
    import core.training.ppo.build
    import core.training.worker  # noqa: F401
    import tests.tiny  # noqa: F401

    assert trl.SFTTrainer and transformers_models()

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    while (request := _receive(connection)) is not None:
        _send(connection, _in_child(request))


def transformers_models() -> list[type]:
    """The model classes the tests use: transformers imports them only when they are asked for."""
    import transformers

    return [
        transformers.LlamaForCausalLM,
        transformers.AutoModelForCausalLM,
        transformers.PreTrainedTokenizerFast,
    ]


def _in_child(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            _child(request, answer.fileno())
        _, status = os.waitpid(pid, 0)
        answer.seek(0)
        written = answer.read()
    if not written:
        return {"error": f"the child ended without an answer, exit {os.waitstatus_to_exitcode(status)}"}
    return dict(json.loads(written))


def _child(request: dict[str, Any], descriptor: int) -> None:
    try:
        module, name = request["function"].split(":")
        result = getattr(importlib.import_module(module), name)(**request["arguments"])
        message = {"result": result}
    except BaseException:
        message = {"error": traceback.format_exc()}
    os.write(descriptor, json.dumps(message).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
