"""The watchdog speaks when a run is ill, once, and stays silent when it is well."""

from __future__ import annotations

import pytest

from core.training.watchdog import PATIENCE, Watchdog

WELL = {
    "loss": 1.0,
    "grad_norm": 0.5,
    "entropy": 0.4,
    "kl": 0.2,
    "reward/no_spread": 0.2,
    "length/clipped": 0.1,
}


def said(stage: str, records: list[dict[str, float]]) -> list[str]:
    dog = Watchdog(stage)
    return [verdict.code for step, values in enumerate(records, 1) for verdict in dog.look(step, values)]


@pytest.mark.parametrize(
    ("stage", "ill", "code"),
    [
        ("sft", {"loss": 9.0}, "loss_diverged"),
        ("dpo", {"loss": 9.0}, "loss_diverged"),
        ("sft", {"grad_norm": 0.0}, "nothing_learnt"),
        ("grpo", {"reward/no_spread": 1.0}, "no_reward_signal"),
        ("grpo", {"length/clipped": 0.9}, "answers_cut"),
        ("rloo", {"kl": 25.0}, "kl_exploded"),
        ("grpo", {"entropy": 0.001}, "entropy_collapsed"),
    ],
)
def test_an_ill_run_is_told_once_after_some_records(stage: str, ill: dict[str, float], code: str) -> None:
    assert said(stage, [WELL] + [WELL | ill] * (PATIENCE - 1)) == []
    assert said(stage, [WELL] + [WELL | ill] * (PATIENCE * 3)) == [code]


def test_it_speaks_again_after_the_run_was_well_in_between() -> None:
    ill = [WELL | {"reward/no_spread": 1.0}] * PATIENCE
    assert said("grpo", [WELL, *ill, WELL, *ill]) == ["no_reward_signal"] * 2


@pytest.mark.parametrize("stage", ["sft", "pretrain", "reward", "dpo", "kto", "orpo", "grpo", "rloo"])
def test_a_healthy_run_is_left_in_peace(stage: str) -> None:
    assert said(stage, [WELL] * 50) == []


def test_only_divergence_stops_a_run() -> None:
    dog = Watchdog("sft")
    verdicts = [v for step in range(20) for v in dog.look(step, WELL | ({"loss": 9.0} if step else {}))]
    assert [verdict.stop for verdict in verdicts] == [True]


def test_the_loss_of_a_stage_that_samples_says_nothing() -> None:
    assert said("grpo", [WELL | {"loss": 0.001}] + [WELL | {"loss": 5.0}] * 20) == []


def test_evaluation_records_are_not_training() -> None:
    assert said("sft", [WELL] + [{"eval_loss": 99.0, "loss": 99.0}] * 20) == []
