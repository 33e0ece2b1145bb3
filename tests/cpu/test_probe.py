"""factory plan --probe and --preview: the job's own steps and rows, before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.job.forecast import Forecast, measured
from tests.cpu.conftest import chats, write_rows

PROMPTS = [{"prompt": f"What is {n}?" + " really" * n, "answer": str(n)} for n in range(12)]
PAIRS = [{"prompt": f"{n}?", "chosen": "Yes " * (n + 1), "rejected": "No."} for n in range(12)]
FEEDBACK = [{"prompt": f"{n}?", "completion": "Yes.", "label": n % 2 == 0} for n in range(12)]
SHORT = {"max_completion_length": 4}


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        ({"name": "sft"}, chats(12)),
        ({"name": "dpo"}, PAIRS),
        ({"name": "kto"}, FEEDBACK),
        ({"name": "grpo", "num_generations": 2, **SHORT}, PROMPTS),
        ({"name": "ppo", **SHORT}, PROMPTS),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)
def test_a_probe_takes_two_real_steps_and_leaves_nothing_behind(zygote, tiny, home, tmp_path, stage, rows):
    job: dict[str, Any] = {
        "model": tiny,
        "data": write_rows(tmp_path / "rows.jsonl", rows),
        "stage": stage,
        "train": {"batch_size": 2, "gradient_accumulation": 1, "epochs": 5.0},
    }
    if stage["name"] in ("grpo", "ppo"):
        job["rewards"] = ["length"]
    seen = zygote.call("tests.cpu.jobs:probe", job=job, home=str(home))
    assert seen["memory"] > 100 << 20 and 0 < seen["step_seconds"] < 60 and seen["longest"] > 5
    assert list((home / "probes").iterdir()) == [] and not (home / "runs").exists()


def test_a_measurement_replaces_the_estimate():
    told = Forecast(
        memory={"weights": 5}, memory_total=5, moment="forward", available=100, device="cpu", verdict="fits",
        lengths="counted", trained=1, flops_per_token=1.0, tokens=10, seconds=9.0, runs=0,
        checkpoint_bytes=1, model_bytes=1, disk_bytes=1,
    )  # fmt: skip
    seen = {"memory": 200, "step_seconds": 2.0, "longest": 40}
    after = measured(told, seen, steps=10, mean=20.0)
    assert (after.memory_total, after.verdict, after.measured) == (200, "too large", True)
    assert after.seconds == 15.0 + 10 * 2.0 * 0.5


def test_the_preview_of_a_plan_shows_prompts_with_their_generation_mark_and_answer(
    zygote, tiny, home: Path, tmp_path, capsys
):
    rows = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": [{"role": "user", "content": "Two?"}], "answer": "2"}] * 2
    )
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"model": tiny, "data": rows, "stage": "grpo", "rewards": ["length"]}))
    # Two prompts are too few for a step: it would not run, and is shown all the same.
    assert main(["--home", str(home), "plan", "--quick", "--preview", str(job)]) == 2
    out, err = capsys.readouterr()
    assert "not even one step" in err
    assert "<|im_start|>assistant" in out and "reference answer: 2" in out
