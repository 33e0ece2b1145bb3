"""The forecast's memory beside the measured peak of real runs on this machine's CPU, and how long it takes to ask.

`python -m benchmarks.forecast` measures the settings below one after another through the worker (a few minutes), and
prints the table of benchmarks/README.md. `--only NAME ...` measures some, `--json FILE` keeps the numbers;
`--again FILE` only forecasts and compares with kept numbers. Settings marked `held out` were not looked at while the
constants of core/job/forecast.py were fitted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]

MIDDLE = {"vocab_size": 400, "layers": 6, "hidden": 512}
"""A random Llama of 11 M weights; the other model is the embedded one."""

SETTINGS: dict[str, dict[str, Any]] = {
    # name: model, stage, method, longest row in tokens, rows per device, and whether the constants never saw it
    "smollm lora sft 4x256": {"stage": "sft", "method": "lora", "length": 256, "batch": 4},
    "smollm full sft 2x128": {"stage": "sft", "method": "full", "length": 128, "batch": 2},
    "smollm qlora sft 2x256": {"stage": "sft", "method": "qlora", "length": 256, "batch": 2},
    "smollm lora dpo 2x256": {"stage": "dpo", "method": "lora", "length": 256, "batch": 2},
    "smollm lora grpo 4x64": {"stage": "grpo", "method": "lora", "length": 64, "batch": 4},
    "middle full sft 8x256": {"stage": "sft", "method": "full", "length": 256, "batch": 8, "model": MIDDLE},
    "smollm full sft 2x384": {"stage": "sft", "method": "full", "length": 384, "batch": 2, "held_out": True},
    "smollm lora sft 1x1024": {"stage": "sft", "method": "lora", "length": 1024, "batch": 1, "held_out": True},
    "smollm qlora dpo 1x384": {"stage": "dpo", "method": "qlora", "length": 384, "batch": 1, "held_out": True},
    "smollm full dpo 1x128": {"stage": "dpo", "method": "full", "length": 128, "batch": 1, "held_out": True},
    "smollm full grpo 4x96": {"stage": "grpo", "method": "full", "length": 96, "batch": 4, "held_out": True},
    "middle lora dpo 8x256": {
        "stage": "dpo",
        "method": "lora",
        "length": 256,
        "batch": 8,
        "model": MIDDLE,
        "held_out": True,
    },
}
WORDS = "the harbour light turns slowly over grey water while small boats come home with the tide".split()


def rows(stage: str, tokens: int, tiny: bool) -> list[dict[str, Any]]:
    """Rows of up to about `tokens` tokens, none the same length: the longest are cut at max_length."""
    made = []
    for number in range(16):
        length = round(tokens * (0.5 + 0.6 * (number % 4) / 3) / (4.5 if tiny else 1))
        text = " ".join(WORDS[(number + place) % len(WORDS)] for place in range(length))
        question = f"Write about harbour number {number}."
        if stage == "sft":
            turns = [("user", question), ("assistant", text)]
            made.append({"messages": [{"role": role, "content": content} for role, content in turns]})
        elif stage == "dpo":
            made.append({"prompt": question, "chosen": text, "rejected": " ".join(reversed(text.split()))})
        else:
            made.append({"prompt": question, "answer": str(number)})
    return made


def job_of(setting: dict[str, Any], model: str, data: Path) -> dict[str, Any]:
    """The job of a setting, as a user would write it: two steps, so that the optimizer has its states."""
    stage: dict[str, Any] = {"name": setting["stage"]}
    if setting["stage"] == "grpo":
        stage |= {"max_completion_length": setting["length"], "num_generations": 4, "max_prompt_length": 64}
    else:
        stage |= {"max_length": setting["length"]}
    job: dict[str, Any] = {
        "model": model,
        "data": str(data),
        "stage": stage,
        "method": setting["method"],
        "train": {"max_steps": 2, "batch_size": setting["batch"], "gradient_accumulation": 1},
        "evaluate": {"prompts": ["Hello"], "max_new_tokens": 1},
    }
    if setting["stage"] == "grpo":
        job["rewards"] = [{"name": "length", "longest": 40}]
    return job


def _model(setting: dict[str, Any], folder: Path) -> str:
    if "model" not in setting:
        return "smollm2-135m"
    place = folder / "middle"
    if not place.is_dir():
        program = f"from tests.tiny import save_tiny_at; save_tiny_at({str(place)!r}, **{setting['model']!r})"
        subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, check=True)
    return str(place)


def measure(name: str, home: Path) -> dict[str, Any]:
    """The highest resident memory of the training process of a setting, in bytes, and the forecast for it."""
    from core.cli.job import counted_plan
    from core.job.machine import this_machine
    from core.job.spec import JobSpec
    from core.runs.folder import create_run

    setting = SETTINGS[name]
    model = _model(setting, home)
    data = home / f"{name.replace(' ', '-')}.jsonl"
    made = rows(setting["stage"], setting["length"], "model" in setting)
    data.write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
    job = job_of(setting, model, data)
    plan = counted_plan(JobSpec.model_validate(job), home, this_machine())
    run = create_run(home, json.dumps(job), plan.job, plan.model_dump(mode="json"))
    with run.log.open("wb") as log:
        argv = [sys.executable, "-m", "core.training.worker", str(run.path)]
        process = subprocess.Popen(argv, cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} failed:\n{run.log.read_text('utf-8')[-3000:]}")
    return {"measured": usage.ru_maxrss * 1024, "plan": plan.model_dump(mode="json")}


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="forecast-"))
    home.mkdir(parents=True, exist_ok=True)
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    for name in arguments.only:
        if name not in kept:
            kept[name] = measure(name, home)
            print(f"{name:<24}{kept[name]['measured'] / 2**20:8.0f} MiB", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
