"""Engine unsloth for real, on a CPU: the losses of engine trl, checkpoints, a stop, and a model that everybody loads.

The two engines get the same rows in the same order and draw the same adapter, so that their losses differ only by the
order in which floating point numbers are added: Unsloth adds up the loss in blocks of its own. Twenty float32 roundings
(6e-8 each) are 1e-6; TOLERANCE leaves ten times that for what the optimizer makes of it. On a GPU Unsloth computes in
16 bits with kernels of its own, and nothing is claimed here about its losses there (tests/gpu).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.job.environments import ENVS, environment
from core.job.machine import CHECKOUT
from core.runs import checkpoints
from core.runs.folder import Run
from tests.cpu.conftest import chats, next_attempt, write_rows
from tests.engines.unsloth import HINT, PLACE, here, made, work
from tests.zygote import Zygote

pytestmark = [pytest.mark.engines, pytest.mark.skipif(not here(), reason=HINT)]
TOLERANCE = 1e-5
"""Largest difference of a loss from that of engine trl, relative to it (absolute below 0.1)."""
LORA = {"name": "lora", "rank": 4}
QUESTION = "What is {} and {}?"


@pytest.fixture(autouse=True)
def _environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is looked for where `here` found it."""
    monkeypatch.setenv(ENVS, str(PLACE))


def write(folder: Path) -> dict[str, str]:
    """Small data for every stage."""
    pairs = [
        {
            "prompt": QUESTION.format(n, n),
            "chosen": f"It is {2 * n}.",
            "rejected": "No idea " + "at all " * (n % 3),
        }
        for n in range(16)
    ]
    texts = [
        {"text": f"Lamp {n} is lit at dusk, and the weather goes into a book. " * (1 + n % 4)}
        for n in range(24)
    ]
    return {
        "sft": write_rows(folder / "sft.jsonl", chats(20)),
        "pretrain": write_rows(folder / "pretrain.jsonl", texts),
        "dpo": write_rows(folder / "dpo.jsonl", pairs),
        "grpo": write_rows(folder / "grpo.jsonl", [{"prompt": QUESTION.format(n, n)} for n in range(16)]),
    }


def job(
    tiny: str, data: dict[str, str], stage: dict[str, Any], method: Any = LORA, **train: Any
) -> dict[str, Any]:
    """A job of a few steps."""
    usual = {
        "batch_size": 2,
        "gradient_accumulation": 2,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
    }
    return {
        "model": tiny,
        "data": data[stage["name"]],
        "stage": stage,
        "method": method,
        "train": {**usual, "save_steps": 100, **train},
        "evaluate": {"prompts": ["Hello"], "max_new_tokens": 4},
    }


SHORT = {"name": "length", "unit": "characters", "shortest": 0, "longest": 20, "fade": 60}
GRPO = {
    "name": "grpo",
    "num_generations": 4,
    "max_prompt_length": 32,
    "max_completion_length": 12,
    "beta": 0.04,
}
SFT = {"name": "sft", "max_length": 128}
CASES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "sft": (SFT, LORA, {}),
    "sft, packed rows that must not see each other": ({**SFT, "packing": True}, LORA, {"max_steps": 2}),
    "sft, every weight": (SFT, "full", {}),
    "sft, checkpointing, rslora, head and targets": (
        SFT,
        {
            **LORA,
            "rslora": True,
            "init": "gaussian",
            "target": ["q_proj", "v_proj"],
            "modules_to_save": ["lm_head"],
        },
        {"gradient_checkpointing": True},
    ),
    "sft, 4 bits": (SFT, {"name": "qlora", "rank": 4}, {}),
    "pretrain": ({"name": "pretrain", "max_length": 64}, LORA, {}),
    "dpo": ({"name": "dpo", "max_length": 128}, LORA, {}),
    "dpo, every weight": ({"name": "dpo", "max_length": 128}, "full", {}),
    "grpo": (GRPO, LORA, {"padding_free": False}),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_engine_trl(name: str, zygote: Zygote, tiny: str, tmp_path: Path) -> None:
    stage, method, train = CASES[name]
    asked = job(tiny, write(tmp_path), stage, method, **train)
    if stage["name"] == "grpo":
        asked["rewards"] = [SHORT]
    done = work(made({**asked, "engine": "unsloth"}, tmp_path / "home"))
    plain = zygote.call("tests.cpu.jobs:train", job={**asked, "engine": "trl"}, home=str(tmp_path / "trl"))
    assert (done["code"], plain["code"]) == (0, 0), done["log"][-3000:]
    assert "Unsloth (CPU): LlamaForCausalLM" in done["log"]
    assert done["losses"].keys() == plain["losses"].keys() and len(done["losses"]) >= 2
    for step, loss in plain["losses"].items():
        assert done["losses"][step] == pytest.approx(loss, rel=TOLERANCE, abs=TOLERANCE / 10), step
    if stage["name"] == "grpo":
        rewards = [values["reward/mean"] for _, values in done["metrics"] if "reward/mean" in values]
        assert rewards and any(rewards) and len(set(rewards)) > 1, "the rewards say nothing"
        assert any(abs(loss) > 1e-6 for loss in done["losses"].values())
    else:
        assert len(set(done["losses"].values())) > 1


def test_a_run_by_the_command_line_is_exported_and_engine_trl_goes_on_from_it(
    tiny: str, tmp_path: Path
) -> None:
    asked = {**job(tiny, write(tmp_path), SFT, max_steps=6), "engine": "unsloth"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(asked), "utf-8")
    told = factory(tmp_path, "train", str(file), "--json").splitlines()[-1]
    done = json.loads(told)
    run = Run(Path(done["path"]))
    plan = json.loads(run.plan_json.read_text("utf-8"))
    assert done["state"] == "succeeded" and plan["engine"] == "unsloth"
    assert plan["argv"][0] == str(environment("unsloth").python(run.home))
    assert plan["versions"]["unsloth"] == "2026.10.9" and plan["versions"]["trl"]
    assert {path.name for path in run.model.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    kinds = [json.loads(line).get("event") for line in run.events.read_text("utf-8").splitlines()]
    assert {"start", "metric", "sample", "checkpoint", "result", "done"} <= set(kinds)
    assert not list(CHECKOUT.glob("unsloth*")), "its compiled code lies in the checkout"
    for target in ("merged", "adapter"):
        factory(tmp_path, "export", run.id, "--to", target)
        assert list((run.path / "exports").glob(f"*{target}*"))
    # Engine trl goes on from the adapter, so it is one for everybody.
    more = {**asked, "engine": "trl", "model": {"name": tiny, "adapter": str(run.model)}}
    file.write_text(json.dumps(more), "utf-8")
    after = json.loads(factory(tmp_path, "train", str(file), "--json").splitlines()[-1])
    assert after["state"] == "succeeded" and after["loss"] < first_loss(run)


def first_loss(run: Run) -> float:
    """The first loss of a run."""
    events = map(json.loads, run.events.read_text("utf-8").splitlines())
    return next(
        one["values"]["loss"] for one in events if one["event"] == "metric" and "loss" in one["values"]
    )


def factory(home: Path, *words: str) -> str:
    """What a command of the command line prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "core.cli", "--home", str(home / "home"), *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stopped_run_goes_on_to_the_same_losses(tiny: str, tmp_path: Path) -> None:
    asked = {**job(tiny, write(tmp_path), SFT, max_steps=40), "engine": "unsloth"}
    whole = work(made(asked, tmp_path / "whole"))
    run = made(asked, tmp_path / "parts")
    with stop_after_first_metric(run):
        first = work(run)
    assert first["code"] == 3 and 1 <= len(first["losses"]) < 40
    assert checkpoints.newest_complete(run) is not None
    next_attempt(run, 2)
    second = work(run)
    assert second["code"] == 0 and whole["code"] == 0
    assert second["losses"] == pytest.approx(whole["losses"], rel=1e-6)


@contextlib.contextmanager
def stop_after_first_metric(run: Run) -> Iterator[None]:
    """Ask for a stop as `factory stop` does, once the run has told a metric."""

    def ask() -> None:
        while not over.wait(0.02):
            if run.events.exists() and '"metric"' in run.events.read_text("utf-8"):
                run.stop_file.touch()
                return

    over = threading.Event()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def test_four_bits_that_unsloth_would_leave_out_silently_are_refused(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSLOTH_CPU_LOAD_IN_4BIT", "0")  # as where bitsandbytes does not work
    asked = job(tiny, write(tmp_path), SFT, {"name": "qlora", "rank": 4})
    done = work(made({**asked, "engine": "unsloth"}, tmp_path / "home"))
    (error,) = [one for one in done["events"] if one["event"] == "error"]
    assert done["code"] == 2 and error["code"] == "not_quantised" and "engine trl" in error["message"]
