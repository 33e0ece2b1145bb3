"""Every stage beside a hand-written trl script with the same settings: CPU-seconds of the training steps, and ratios.

`python benchmarks/stages.py [--steps 8]` with a random Llama of 10 M weights and rows of uneven length. CPU-seconds
inside Trainer.training_step (generation included), because other work on a machine does not count in them. ppo, whose
loops have no such function, is run twice, with three times as many updates the second time: the difference is updates.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

WORDS = "the harbour light turns slowly over grey water while small boats come home with the tide".split()


def text(number: int) -> str:
    """5 to 90 words, made by counting."""
    return " ".join(WORDS[(number + place) % len(WORDS)] for place in range(5 + (number * 37) % 86))


def rows_of(stage: str, count: int) -> list[dict[str, Any]]:
    """Rows in the shape of a stage, of uneven lengths."""
    made: list[dict[str, Any]] = []
    for number in range(count):
        asked = [{"role": "user", "content": f"Write about harbour {number}."}]
        answer = [{"role": "assistant", "content": text(number)}]
        worse = [{"role": "assistant", "content": text(number + 5)}]
        if stage == "pretrain":
            made.append({"text": text(number)})
        elif stage == "sft":
            made.append({"messages": asked + answer})
        elif stage == "kto":
            made.append(
                {"prompt": asked, "completion": answer if number % 2 else worse, "label": bool(number % 2)}
            )
        elif stage in ("grpo", "rloo", "ppo"):
            made.append({"prompt": asked, "answer": str(number)})
        else:
            made.append({"prompt": asked, "chosen": answer, "rejected": worse})
    return made


def timed(target: str, arguments: dict[str, Any]) -> dict[str, float]:
    """Run `module:function` in this process; CPU-seconds and number of training steps in it."""
    import importlib

    from transformers import Trainer

    spent = {"cpu": 0.0, "steps": 0}
    plain = Trainer.training_step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return plain(self, *args, **kwargs)
        finally:
            spent["cpu"] += time.process_time() - began
            spent["steps"] += 1

    Trainer.training_step = step
    module, name = target.split(":")
    with Path("/dev/null").open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        getattr(importlib.import_module(module), name)(**arguments)
    return spent


def whole(target: str, arguments: dict[str, Any]) -> float:
    """Run `module:function` in this process; all its CPU-seconds."""
    import importlib

    module, name = target.split(":")
    began = time.process_time()
    with Path("/dev/null").open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        getattr(importlib.import_module(module), name)(**arguments)
    return time.process_time() - began


def save_middle(folder: str) -> str:
    """A random Llama of about 10 M weights with the tests' tokenizer."""
    from tests.tiny import save_tiny

    return str(save_tiny(Path(folder), layers=8, hidden=256))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--stages",
        nargs="*",
        default=["sft", "pretrain", "reward", "dpo", "kto", "orpo", "grpo", "rloo", "ppo"],
    )
    options = parser.parse_args()
    from tests.cpu.jobs import GENERATION, TIGHT
    from tests.zygote import Zygote

    zygote = Zygote()
    print(f"{'stage':10}{'ours, CPU-s':>14}{'trl, CPU-s':>14}{'trl / ours':>12}")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        model = zygote.call("benchmarks.stages:save_middle", folder=str(folder / "model"))
        for stage in options.stages:
            rows = rows_of(stage, 120)
            data = folder / f"{stage}.jsonl"
            data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
            template = folder / f"{stage}.jinja"
            template.write_text(GENERATION if stage == "sft" else TIGHT, "utf-8")
            if stage == "ppo":
                tell(stage, *updates(zygote, model, data, template, folder, options.steps))
                continue
            ours = zygote.call(
                "benchmarks.stages:timed",
                target="tests.cpu.jobs:train",
                arguments={
                    "job": job(stage, model, data, template, options.steps),
                    "home": str(folder / stage),
                },
            )
            theirs = zygote.call(
                "benchmarks.stages:timed",
                target=f"tests.cpu.jobs:{peer(stage)}",
                arguments=peer_arguments(stage, model, rows, folder, options.steps),
            )
            tell(stage, ours["cpu"] / ours["steps"], theirs["cpu"] / theirs["steps"])
    zygote.close()


def tell(stage: str, mine: float, peer_cpu: float) -> None:
    """A line of the table."""
    print(f"{stage:10}{mine:14.3f}{peer_cpu:14.3f}{peer_cpu / mine:12.2f}", flush=True)


def updates(
    zygote: Any, model: str, data: Path, template: Path, folder: Path, steps: int
) -> tuple[float, float]:
    """CPU-seconds of an update of ppo, ours and trl's: 8 prompts, 48 tokens an answer, a reward model of one step."""
    judge = folder / "judge.jsonl"
    judge.write_text("".join(json.dumps(row) + "\n" for row in rows_of("reward", 16)), "utf-8")
    asked = job("reward", model, judge, template, 1)
    trained = zygote.call("tests.cpu.jobs:train", job=asked, home=str(folder / "judge"))
    reward = f"{trained['run']}/model"
    prompts = [row["prompt"][0]["content"] for row in rows_of("ppo", 120)]
    spent: dict[str, list[float]] = {"ours": [], "trl": []}
    for count in (steps, 3 * steps):
        mine = job("ppo", model, data, template, count)
        mine["stage"] |= {"max_completion_length": 48}
        mine["rewards"] = [{"name": "model", "source": reward}]
        call = {"job": mine, "home": str(folder / f"ppo-{count}")}
        spent["ours"].append(
            zygote.call("benchmarks.stages:whole", target="tests.cpu.jobs:train", arguments=call)
        )
        settings = {
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "linear",
            "warmup_steps": 0,
            "response_length": 48,
            "total_episodes": count * 8,
        }
        script = {"model": model, "reward": reward, "prompts": prompts, "settings": settings, "lora": None}
        call = {**script, "out": str(folder / f"ppo-trl-{count}")}
        spent["trl"].append(
            zygote.call("benchmarks.stages:whole", target="tests.cpu.jobs_ppo:plain_trl_ppo", arguments=call)
        )
    return tuple((many - few) / (2 * steps) for few, many in spent.values())  # type: ignore[return-value]


def job(stage: str, model: str, data: Path, template: Path, steps: int) -> dict[str, Any]:
    """Our job."""
    spec: dict[str, Any] = {"name": stage}
    if stage in ("grpo", "rloo"):
        spec |= {"num_generations": 4, "max_completion_length": 48, "beta": 0.04}
    if stage == "pretrain":
        spec |= {"packing": False}
    rewards = [{"name": "length", "unit": "characters", "shortest": 0, "longest": 40, "fade": 100}]
    return {
        "model": {"name": model, "template": str(template)},
        "data": str(data),
        "stage": spec,
        "method": "full",
        **({"rewards": rewards} if stage in ("grpo", "rloo") else {}),
        "train": {
            "batch_size": 8,
            "gradient_accumulation": 1,
            "max_steps": steps,
            "learning_rate": 1e-4,
            "warmup": 0.0,
            "scheduler": "linear",
            "logging_steps": 1,
            "save_steps": 100_000,
        },
        "evaluate": {"prompts": ["x"], "max_new_tokens": 1},
    }


def peer(stage: str) -> str:
    """The hand-written script of a stage."""
    if stage in ("sft", "pretrain"):
        return "plain_trl_sft"
    return "plain_trl_online" if stage in ("grpo", "rloo") else "plain_trl_preference"


def peer_arguments(stage: str, model: str, rows: list[dict], folder: Path, steps: int) -> dict[str, Any]:
    """The same settings in trl's words."""
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "max_steps": steps,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
    }
    if stage in ("grpo", "rloo"):
        settings |= {"num_generations": 4, "max_completion_length": 48, "beta": 0.04}
    given = {
        "model": model,
        "rows": rows,
        "out": str(folder / f"{stage}-trl"),
        "settings": settings,
        "lora": None,
    }
    return given if stage in ("sft", "pretrain") else {"stage": stage, **given}


if __name__ == "__main__":
    main()
