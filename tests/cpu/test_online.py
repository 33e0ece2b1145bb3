"""GRPO and RLOO through the real worker: plain trl's numbers, rewards of the job, and answers that are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpu.conftest import write_rows
from tests.zygote import Zygote

TRL = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_steps": 4,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "num_generations": 4,
    "max_completion_length": 16,
    "beta": 0.04,
}
LONG = {"name": "length", "unit": "characters", "shortest": 40, "longest": 80, "fade": 40}
"""A reward that tells the tiny model's answers apart: they are 0 to 60 characters long."""


def prompts(count: int) -> list[dict[str, Any]]:
    """Questions with an answer that can be checked."""
    return [
        {"prompt": [{"role": "user", "content": f"What is {n} and {n}?"}], "answer": str(2 * n)}
        for n in range(count)
    ]


def job(model: str, data: str, stage: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A small job of four steps."""
    train = {
        "batch_size": 4,
        "gradient_accumulation": 2,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "warmup": 0.0,
        "scheduler": "linear",
        "logging_steps": 1,
        "save_steps": 1000,
        "padding_free": False,  # another order of additions, and with sampling the runs would part
        "fused": False,
    }
    return {
        "model": model,
        "data": data,
        "stage": {"num_generations": 4, "max_completion_length": 16, "beta": 0.04, **stage},
        "rewards": [LONG],
        "evaluate": {"prompts": ["What is 1 and 1?"], "max_new_tokens": 4},
        **parts,
        "train": train | parts.get("train", {}),
    }


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A file of twenty prompts."""
    return write_rows(tmp_path / "rows.jsonl", prompts(20))


def metrics_of(done: dict[str, Any], name: str) -> list[float]:
    """One metric of every record that has it."""
    return [
        event["values"][name]
        for event in done["events"]
        if event["event"] == "metric" and name in event["values"]
    ]


def metrics(done: dict[str, Any], name: str) -> list[float]:
    """One metric of every step."""
    return [event["values"][name] for event in done["events"] if event["event"] == "metric"]


def taught(done: dict[str, Any]) -> bool:
    """Whether the rewards of a run told its answers apart, and moved weights: equal zeros prove nothing."""
    spread = all(0 < value < 1 for value in metrics(done, "reward/std"))
    return spread and all(norm > 1e-3 for norm in metrics(done, "grad_norm"))


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("stage", ["grpo", "rloo"])
def test_losses_and_rewards_equal_those_of_a_hand_written_trl_script(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, data: str, stage: str, method: str
) -> None:
    spec = {"name": "lora", "rank": 8, "alpha": 16} if method == "lora" else "full"
    ours = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, {"name": stage}, method=spec), home=str(home)
    )
    assert ours["code"] == 0, ours["events"][-1]
    theirs = zygote.call(
        "tests.cpu.jobs:plain_trl_online",
        stage=stage,
        model=tiny,
        rows=prompts(20),
        out=str(tmp_path / "trl"),
        settings=TRL,
        lora={"r": 8, "lora_alpha": 16, "lora_dropout": 0.0} if method == "lora" else None,
    )
    assert len(theirs) == 4
    for name, theirs_is in (("loss", "loss"), ("reward/mean", "reward"), ("grad_norm", "grad_norm")):
        expected = [record[theirs_is] for record in theirs]
        assert metrics(ours, name) == pytest.approx(expected, rel=1e-6, abs=1e-9), name
    assert taught(ours)
    trained = {"ours": f"{ours['run']}/model", "theirs": str(tmp_path / "trl" / "model")}
    assert zygote.call("tests.cpu.jobs:largest_difference", **trained) < 1e-6


def test_answers_are_shown_with_what_each_reward_gave(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    rewards = [LONG, {"name": "repetition", "weight": 0.5}]
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, {"name": "grpo"}, rewards=rewards), home=str(home)
    )
    shown = [event for event in done["events"] if event["event"] == "sample" and event["kind"] == "during"]
    assert {event["step"] for event in shown} == {1, 2, 3, 4}
    assert all(set(event["scores"]) == {"length", "repetition"} for event in shown)
    assert len(metrics(done, "reward/length/mean")) == len(metrics(done, "reward/repetition/mean")) == 4


def test_a_job_without_rewards_is_refused(zygote: Zygote, tiny: str, home: Path, data: str) -> None:
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, {"name": "grpo"}, rewards=[]), home=str(home)
    )
    assert (done["code"], done["events"][-1]["code"]) == (2, "rewards_missing")


def test_a_reward_without_its_column_is_refused_before_anything_is_generated(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "bare.jsonl", [{"prompt": row["prompt"]} for row in prompts(8)])
    asked = job(tiny, data, {"name": "grpo"}, rewards=["accuracy"])
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert (done["code"], done["events"][-1]["code"]) == (2, "reward_column_missing")


def test_a_batch_of_broken_groups_is_refused_with_the_nearest_whole_one(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    asked = job(
        tiny,
        data,
        {"name": "grpo", "num_generations": 8},
        train={"batch_size": 4, "gradient_accumulation": 3},
    )
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert (done["code"], done["events"][-1]["code"]) == (2, "batch_not_in_groups")
    assert (
        "= 12 answers" in done["events"][-1]["message"] and "nearest is 16" in done["events"][-1]["message"]
    )


@pytest.mark.parametrize(
    ("stage", "rate", "learns"), [("grpo", 3e-3, True), ("grpo", 0.0, False), ("rloo", 3e-3, True)]
)
def test_the_mean_reward_rises_and_does_not_with_learning_rate_zero(
    zygote: Zygote, tiny: str, home: Path, data: str, stage: str, rate: float, learns: bool
) -> None:
    train = {"max_steps": 25, "learning_rate": rate, "batch_size": 16, "gradient_accumulation": 1}
    short = {**LONG, "shortest": 0, "longest": 4, "fade": 60}
    asked = job(
        tiny,
        data,
        {"name": stage, "beta": 0.0},
        method="full",
        rewards=[short],
        train={**train, "scheduler": "constant"},
    )
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    rewards = metrics(done, "reward/mean")
    assert (sum(rewards[-5:]) / 5 - sum(rewards[:5]) / 5 > 0.1) is learns


@pytest.mark.parametrize("stage", ["grpo", "rloo"])
def test_held_out_prompts_are_answered_in_whole_groups(
    zygote: Zygote, tiny: str, home: Path, data: str, stage: str
) -> None:
    """trl refuses a batch of held-out answers that is no whole groups, though the training batches are."""
    asked = job(tiny, data, {"name": stage, "num_generations": 8}, train={"max_steps": 1, "eval_steps": 1})
    asked["data"] = {"path": data, "eval": 0.2}
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert any("eval_reward/mean" in event.get("values", {}) for event in done["events"])
