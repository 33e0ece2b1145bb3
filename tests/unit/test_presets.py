"""Defaults are filled where the user left them empty, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.job.checks import check
from core.job.fixes import fixed
from core.job.load import parse_job
from core.job.machine import Machine
from core.job.presets import PRESETS, preset_for, resolve
from core.job.schedule import schedule, smaller_batches
from core.job.spec import JobSpec, TrainSpec
from core.stages import STAGES
from data.errors import Finding


def job(**parts: Any) -> JobSpec:
    return JobSpec.model_validate({"model": "m", "data": "d.jsonl", "stage": "sft", **parts})


def test_every_stage_has_presets_for_every_size() -> None:
    names = {module.Spec.model_fields["name"].default for module in STAGES}
    assert names == set(PRESETS)
    assert all(rows[-1][0] == float("inf") for rows in PRESETS.values())


def test_lora_learns_about_ten_times_faster_than_full_in_sft() -> None:
    small, large = preset_for("sft", 135_000_000), preset_for("sft", 70_000_000_000)
    assert small.lora_rate == pytest.approx(10 * small.full_rate)
    assert large.full_rate < small.full_rate


def test_what_the_user_set_is_never_changed() -> None:
    resolved = resolve(job(train={"learning_rate": 1e-3, "batch_size": 3}), parameters=None, gpu=False)
    assert (resolved.job.train.learning_rate, resolved.job.train.batch_size) == (1e-3, 3)
    assert "train.learning_rate" not in resolved.defaults
    assert "train.scheduler" in resolved.defaults


def test_a_large_batch_lowers_the_accumulation_to_reach_the_effective_batch() -> None:
    train = resolve(job(train={"batch_size": 8}), parameters=None, gpu=False).job.train
    assert train.gradient_accumulation == 2
    train = resolve(job(train={"gradient_accumulation": 16}), parameters=None, gpu=False).job.train
    assert train.batch_size == 1


@pytest.mark.parametrize(
    ("asked", "processes", "batch", "accumulation"),
    [
        ({}, 1, 4, 24),
        ({}, 8, 4, 3),
        ({}, 32, 3, 1),
        ({"batch_size": 6}, 4, 6, 4),
        ({"gradient_accumulation": 2}, 4, 12, 2),
    ],
)
def test_a_global_batch_is_met_exactly_on_any_number_of_processes(
    asked: dict[str, int], processes: int, batch: int, accumulation: int
) -> None:
    wanted = job(train={"global_batch_size": 96, **asked}, hardware={"devices": processes})
    train = resolve(wanted, parameters=None, gpu=False).job.train
    assert (train.batch_size, train.gradient_accumulation) == (batch, accumulation)
    assert batch * accumulation * processes == 96


@pytest.mark.parametrize(
    ("batch", "accumulation", "least", "found"),
    [
        (8, 1, 1, [(4, 2), (2, 4), (1, 8)]),
        (5, 2, 1, [(2, 5), (1, 10)]),
        (3, 1, 2, []),
        (6, 2, 2, [(3, 4)]),
        (1, 4, 1, []),
    ],
)
def test_smaller_batches_make_the_very_same_step(
    batch: int, accumulation: int, least: int, found: list[tuple[int, int]]
) -> None:
    assert list(smaller_batches(batch, accumulation, least=least)) == found


def test_resolving_twice_changes_nothing() -> None:
    once = resolve(job(), parameters=1, gpu=True).job
    assert resolve(once, parameters=1, gpu=True).job == once


def test_max_steps_wins_over_epochs() -> None:
    resolved = resolve(job(train={"max_steps": 7}), parameters=None, gpu=False).job.train
    assert resolved.epochs is None
    assert schedule(resolved, rows=1000).total_steps == 7


@pytest.mark.parametrize(
    ("rows", "batch", "accumulation", "epochs", "steps"),
    [(70, 8, 1, 4, 36), (10, 4, 4, 3, 3), (17, 4, 4, 1, 2), (1, 8, 8, 2, 2), (100, 1, 1, 0.5, 50)],
)
def test_steps_follow_the_trainers_rule(
    rows: int, batch: int, accumulation: int, epochs: float, steps: int
) -> None:
    train = TrainSpec(batch_size=batch, gradient_accumulation=accumulation, epochs=epochs, warmup=0.1)
    assert schedule(train, rows).total_steps == steps


def test_warmup_is_a_share_below_one_and_steps_from_one() -> None:
    share = TrainSpec(batch_size=1, gradient_accumulation=1, epochs=1.0, warmup=0.1)
    assert schedule(share, rows=55).warmup_steps == 6
    assert schedule(share.model_copy(update={"warmup": 5.0}), rows=55).warmup_steps == 5
    assert schedule(share.model_copy(update={"max_steps": 1}), rows=55).warmup_steps == 0


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("lora", True),
        ({"name": "qlora", "dropout": 0.1}, True),
        ({"name": "lora", "rank": 8}, False),
        ({"name": "lora", "rslora": False}, False),
        ("full", False),
    ],
)
def test_pretraining_with_an_adapter_nobody_chose_the_size_of_is_told_what_is_usual(
    tmp_path: Path, method: object, told: bool
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one two three"}\n' * 64, "utf-8")
    text = json.dumps(
        {"model": "smollm2-135m", "stage": "pretrain", "data": str(tmp_path / "rows.jsonl"), "method": method}
    )
    here = Machine("here", "3.11", 2, 24 << 30, 20 << 30)

    def look(now: str) -> list[Finding]:
        return check(parse_job(now), here, tmp_path)

    found = [one for one in look(text) if one.code == "pretrain_rank_small"]
    assert bool(found) is told and all(one.level == "note" for one in found)
    if told:
        changed, _ = fixed(text, look, ["pretrain_rank_small"])
        method_of: Any = parse_job(changed).method
        assert (method_of.rank, method_of.alpha, method_of.rslora) == (128, 32, True)
