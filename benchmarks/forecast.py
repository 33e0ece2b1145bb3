"""The forecast's memory beside the measured peak of real runs on this machine's CPU.

`python -m benchmarks.forecast` measures the settings below one after another through the worker (a few minutes), and
prints the table of benchmarks/README.md. What was measured is kept in benchmarks/forecast.json and only forecast
again, unless `--again` is given; tests/unit/test_forecast.py holds the forecast against it. Settings marked
`held_out` were not looked at while the constants of core/job/memory.py were fitted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.job.plan import Plan

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name("forecast.json")
CONFIG = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "tie_word_embeddings",
)
"""What is kept of the config.json of a model that is made for the measurement."""

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
    "smollm lora sft 1x1024": {
        "stage": "sft",
        "method": "lora",
        "length": 1024,
        "batch": 1,
        "held_out": True,
    },
    "smollm qlora dpo 1x384": {
        "stage": "dpo",
        "method": "qlora",
        "length": 384,
        "batch": 1,
        "held_out": True,
    },
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


def planned(name: str, home: Path) -> Plan:
    """The plan of a setting with its rows counted, forecast included."""
    from core.job.counting import counted_plan
    from core.job.machine import this_machine
    from core.job.spec import JobSpec

    setting = SETTINGS[name]
    model = _model(setting, home)
    data = home / f"{name.replace(' ', '-')}.jsonl"
    made = rows(setting["stage"], setting["length"], "model" in setting)
    data.write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
    return counted_plan(JobSpec.model_validate(job_of(setting, model, data)), home, this_machine())


def measure(plan: Plan, home: Path) -> int:
    """The highest resident memory of the training process of a plan, in bytes."""
    from core.runs.folder import create_run

    run = create_run(home, "", plan.job, plan.model_dump(mode="json"))
    with run.log.open("wb") as log:
        argv = [sys.executable, "-m", "core.training.worker", str(run.path)]
        process = subprocess.Popen(argv, cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the run failed:\n{run.log.read_text('utf-8')[-3000:]}")
    return usage.ru_maxrss * 1024


def facts(name: str, plan: Plan, peak: int) -> dict[str, Any]:
    """What is kept of a measurement: enough to forecast it again without a model or a tokenizer."""
    from core.job.models import read_config
    from core.job.plan import sequence_lengths

    lengths = sequence_lengths(plan.job_spec, plan.counts.lengths if plan.counts else None)
    assert lengths is not None
    kept: dict[str, Any] = {"peak": peak, "longest": lengths.longest, "mean": round(lengths.mean, 2)}
    if "model" in SETTINGS[name]:
        config = read_config(Path(plan.job["model"]["name"]))
        kept["config"] = {key: config[key] for key in CONFIG}
    return kept


def table(kept: dict[str, Any], foretold: dict[str, int]) -> str:
    """The table of benchmarks/README.md."""
    lines = ["| setting | measured MiB | forecast MiB | error | |", "|---|---:|---:|---:|---|"]
    for name, total in foretold.items():
        peak = kept[name]["peak"]
        held = "held out" if SETTINGS[name].get("held_out") else "fitted"
        lines.append(
            f"| {name} | {peak / 2**20:,.0f} | {total / 2**20:,.0f} | {total / peak - 1:+.0%} | {held} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what was not measured yet, forecast, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS))
    parser.add_argument("--again", action="store_true", help="measure what is in forecast.json too")
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="forecast-"))
    home.mkdir(parents=True, exist_ok=True)
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    foretold = {}
    for name in arguments.only:
        plan = planned(name, home)
        assert plan.forecast is not None
        foretold[name] = plan.forecast.memory_total
        if arguments.again or name not in kept:
            kept[name] = facts(name, plan, measure(plan, home))
            KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    print(table(kept, foretold))


if __name__ == "__main__":
    main()
