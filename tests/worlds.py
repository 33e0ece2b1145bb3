"""Several training processes of one run, forked from the zygote: what core.training.ranks starts, without the imports.

Each is the real worker, told by torchrun's environment who it is; they connect over gloo as ever.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from tests.cpu import jobs


def train(job: dict[str, Any], home: str, processes: int = 2, same_answers: bool = False) -> dict[str, Any]:
    """Submit a job and run it in so many processes: losses, exit codes by rank, the run folder."""
    run = jobs.submit(job, home)
    return {**work(run, processes, same_answers=same_answers), "run": run}


def alone_with_same_answers(job: dict[str, Any], home: str) -> dict[str, Any]:
    """`tests.cpu.jobs:train` with answers drawn as `same_answers` draws them."""
    _draw_by_place(0)
    done = jobs.train(job, home)
    metrics = [(event["step"], event["values"]) for event in done["events"] if event["event"] == "metric"]
    return {
        **done,
        "rewards": {str(step): values["reward/mean"] for step, values in metrics if "reward/mean" in values},
    }


def work(
    run_dir: str,
    processes: int = 2,
    stop_at: int | None = None,
    same_answers: bool = False,
    limit: int = 240,
) -> dict[str, Any]:
    """Run the workers of a run folder; `stop_at` has the last of them asked to stop during that step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = [_fork(run_dir, rank, processes, port, stop_at, same_answers) for rank in range(processes)]
    signal.signal(signal.SIGALRM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in pids])
    signal.alarm(limit)  # processes that wait for each other must not wait for ever
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    signal.alarm(0)
    events = [
        json.loads(line) for line in (Path(run_dir) / "events.jsonl").read_text("utf-8").split("\n") if line
    ]
    metrics = [(event["step"], event["values"]) for event in events if event["event"] == "metric"]
    attempt = json.loads((Path(run_dir) / "attempt.json").read_text("utf-8"))["attempt"]
    words = sorted((Path(run_dir) / "ranks" / f"attempt-{attempt}").glob("rank-*.json"))
    return {
        "codes": codes,
        "outcomes": [json.loads(path.read_text("utf-8"))["outcome"] for path in words],
        "losses": {str(step): values["loss"] for step, values in metrics if "loss" in values},
        "eval_losses": {str(step): values["eval_loss"] for step, values in metrics if "eval_loss" in values},
        "norms": {str(step): values["grad_norm"] for step, values in metrics if "grad_norm" in values},
        "counts": {str(step): values.get("trained_tokens") for step, values in metrics if "loss" in values},
        "rewards": {str(step): values["reward/mean"] for step, values in metrics if "reward/mean" in values},
        "events": [event["event"] for event in events],
        "errors": [event["message"] for event in events if event["event"] == "error"],
    }


def _fork(run_dir: str, rank: int, processes: int, port: int, stop_at: int | None, same_answers: bool) -> int:
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        words = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": processes,
            "LOCAL_WORLD_SIZE": processes,
            "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(value) for name, value in words.items()})
        if stop_at is not None and rank == processes - 1:
            _ask_during(stop_at)
        if same_answers:
            _draw_by_place(rank)
        from core.training.worker import main

        code = main(run_dir)
    finally:
        os._exit(code)


def _ask_during(step: int) -> None:
    """Have this process alone asked to stop, by a signal, while that step is running."""
    from core.training import callbacks

    begin = callbacks.RunCallback.on_step_begin

    def ask(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        begin(self, args, state, control, **kwargs)

    callbacks.RunCallback.on_step_begin = ask  # type: ignore[method-assign] - this process ends with the test


def _draw_by_place(rank: int) -> None:
    """Draw each token by the number of its answer among all processes' answers: who makes an answer changes nothing."""
    import torch

    from core.training.online import _OurPrompts

    made, place = [0], [0]
    generate = _OurPrompts._generate_and_score_completions

    def begin(self: Any, inputs: Any) -> Any:
        made[0], place[0] = made[0] + 1, 0
        return generate(self, inputs)

    def draw(shares: Any, num_samples: int, **kwargs: Any) -> Any:
        place[0] += 1
        rows = len(shares)
        chance = torch.Generator().manual_seed(1000 * made[0] + place[0])
        numbers = torch.rand(64, generator=chance)[rank * rows : (rank + 1) * rows]
        return (
            (shares.double().cumsum(-1) < numbers[:, None])
            .sum(-1, keepdim=True)
            .clamp(max=shares.shape[-1] - 1)
        )

    _OurPrompts._generate_and_score_completions = begin  # type: ignore[method-assign] - ends with the test
    torch.multinomial = draw


def farthest(one: str, other: str) -> float:
    """The largest difference between two model folders' weights, relative to the largest weight; same names only."""
    from safetensors.torch import load_file

    def load(folder: str) -> dict[str, Any]:
        return {
            k: v.float()
            for path in sorted(Path(folder).glob("*.safetensors"))
            for k, v in load_file(path).items()
        }

    first, second = load(one), load(other)
    assert set(first) == set(second) and first, set(first) ^ set(second)
    largest = max(float(value.abs().max()) for value in first.values())
    return max(float((value - second[name]).abs().max()) for name, value in first.items()) / largest


def answers(folder: str) -> bool:
    """Whether a model folder loads by itself and answers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Hi", return_tensors="pt")["input_ids"]
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=3)
    return bool(out.shape[1] > ids.shape[1])
