"""Reward, DPO (and SimPO), KTO and ORPO through the real worker: plain trl's numbers, and they teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpu.conftest import write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

TRL = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_steps": 5,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
}
LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
STAGES: dict[str, dict[str, Any]] = {
    "reward": {"name": "reward"},
    "dpo": {"name": "dpo"},
    "simpo": {"name": "dpo", "loss": ["simpo"]},
    "kto": {"name": "kto"},
    "orpo": {"name": "orpo"},
}


def pairs(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Questions whose better answer is polite and whose worse one is rude."""
    return [
        {
            "prompt": [{"role": "user", "content": f"What is {n} and {n}?"}],
            "chosen": [
                {"role": "assistant", "content": f"Of course, it is {2 * n}" + " indeed" * (n % 3) + "."}
            ],
            "rejected": [{"role": "assistant", "content": f"No idea {n}, go away" + " now" * (n % 4) + "."}],
        }
        for n in range(start, start + count)
    ]


def thumbs(count: int, start: int = 0) -> list[dict[str, Any]]:
    """The same as single answers with a label."""
    return [
        {"prompt": row["prompt"], "completion": row["chosen" if good else "rejected"], "label": good}
        for row in pairs(count // 2, start)
        for good in (True, False)
    ]


def rows_of(stage: str, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Rows in the shape a stage needs."""
    return thumbs(count, start) if stage == "kto" else pairs(count, start)


def job(model: str, data: Any, stage: dict[str, Any], template: str, **parts: Any) -> dict[str, Any]:
    """A small job of five steps."""
    train = {
        "batch_size": 4,
        "gradient_accumulation": 2,
        "max_steps": 5,
        "learning_rate": 1e-3,
        "warmup": 0.0,
        "scheduler": "linear",
        "logging_steps": 1,
        "save_steps": 1000,
    }
    return {
        "model": {"name": model, "template": template},
        "data": data,
        "stage": {"max_length": 256, **stage},
        "evaluate": {"max_new_tokens": 4},
        **parts,
        "train": train | parts.get("train", {}),
    }


@pytest.fixture
def template(tmp_path: Path) -> str:
    """A chat template with nothing behind the end mark."""
    path = tmp_path / "tight.jinja"
    path.write_text(TIGHT, "utf-8")
    return str(path)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("stage", STAGES)
def test_losses_equal_those_of_a_hand_written_trl_script(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, template: str, stage: str, method: str
) -> None:
    rows = rows_of(stage, 44)
    data = write_rows(tmp_path / "rows.jsonl", rows)
    spec = {"name": "lora", "rank": 8, "alpha": 16} if method == "lora" else "full"
    asked = job(tiny, data, STAGES[stage], template, method=spec)
    ours = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert ours["code"] == 0, ours["events"][-1]
    theirs = zygote.call(
        "tests.cpu.jobs:plain_trl_preference",
        stage=stage,
        model=tiny,
        rows=rows,
        out=str(tmp_path / "trl"),
        settings=TRL,
        lora=LORA if method == "lora" else None,
    )
    assert list(ours["losses"].values()) == pytest.approx(theirs, rel=1e-6)
    assert len(theirs) == 5


@pytest.mark.parametrize("rate", [3e-3, 0.0])
@pytest.mark.parametrize("stage", STAGES)
def test_the_stage_teaches_and_does_not_with_learning_rate_zero(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, template: str, stage: str, rate: float
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows_of(stage, 48))
    held_out = write_rows(tmp_path / "eval.jsonl", rows_of(stage, 24, start=60))
    train = {
        "learning_rate": rate,
        "max_steps": 30,
        "eval_steps": 30,
        "gradient_accumulation": 1,
        "batch_size": 8,
    }
    spec = job(tiny, {"path": data, "eval": held_out}, STAGES[stage], template, method="full", train=train)
    done = zygote.call("tests.cpu.jobs:train", job=spec, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    values = [
        event["values"] for event in done["events"] if event["event"] == "metric" and event["step"] == 30
    ]
    last = {name: value for record in values for name, value in record.items()}
    assert _learnt(stage, last) is (rate > 0)


def _learnt(stage: str, values: dict[str, float]) -> bool:
    """Whether held-out rows show what the stage is for."""
    if stage == "kto":
        return values["eval_reward/chosen"] > 0.05 and values["eval_reward/rejected"] < -0.05
    if stage == "simpo":
        return values["eval_accuracy"] > 0.9 and values["eval_margin"] > 0.5
    margin = 0.05 if stage in ("dpo", "orpo") else 0.5
    return (
        values["eval_accuracy"] > 0.9
        and values["eval_margin" if stage != "reward" else "eval_margin"] > margin
    )


@pytest.mark.parametrize("stage", STAGES)
def test_the_loss_before_training_leaves_nothing_for_the_first_evaluation(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    template = tmp_path / "tight.jinja"
    template.write_text(TIGHT, "utf-8")
    data = {
        "path": write_rows(tmp_path / "rows.jsonl", rows_of(stage, 16)),
        "eval": write_rows(tmp_path / "eval.jsonl", rows_of(stage, 8, start=60)),
    }
    asked = job(tiny, data, STAGES[stage], str(template), method="full", train={"max_steps": 1})
    done = zygote.call("tests.cpu.jobs:metrics_left_over", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert done["left"] == []
    assert any(event["event"] == "result" for event in done["events"])
