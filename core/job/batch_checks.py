"""How batches, steps and rows go together: what a trainer would only tell after the model is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from core.job.case import Case, find
from core.job.presets import preset_for
from core.job.row_checks import settings_of
from core.job.schedule import schedule
from core.methods import ADAPTERS
from data.errors import Finding

PREFERENCE = ("dpo", "kto", "orpo", "grpo", "rloo", "ppo")
"""Stages whose rates are a fortieth of fine-tuning's (TRL's documentation)."""


def batch_findings(case: Case) -> Iterator[Finding]:
    """All of them, on the job with its presets."""
    yield from _global(case)
    yield from _groups(case)
    yield from _rows_and_batches(case)
    yield from _steps(case)
    yield from _rate(case)
    yield from _model(case)


def _global(case: Case) -> Iterator[Finding]:
    """A batch for all devices together that the devices, or the other two numbers, cannot make."""
    train, processes = case.job.train, case.job.hardware.processes
    wanted, size, times = train.global_batch_size, train.batch_size, train.gradient_accumulation
    if wanted is None:
        return
    unit = (size or 1) * (times or 1) * processes
    parts = [f"train.batch_size {size}"] if size else []
    parts += [f"train.gradient_accumulation {times}"] if times else []
    parts += [f"{processes} processes"] if processes > 1 else []
    told = " x ".join(parts) + (f" = {unit:,}" if len(parts) > 1 else "")
    field = "train.global_batch_size"
    if size and times and wanted != unit:
        text = f"train.global_batch_size {wanted:,} is not {told}; leave one of them empty, and it follows."
        yield find("global_batch_contradicts", "error", field, wanted, text, train__global_batch_size=None)
    elif wanted % unit:
        below = wanted // unit * unit
        near = f"the nearest are {below:,} and {below + unit:,}" if below else f"the least is {unit:,}"
        text = f"train.global_batch_size {wanted:,} is no multiple of {told}; {near}."
        nearest = below if below and wanted - below <= below + unit - wanted else below + unit
        yield find("global_batch_uneven", "error", field, wanted, text, train__global_batch_size=nearest)


def _groups(case: Case) -> Iterator[Finding]:
    train, stage = case.resolved.train, case.resolved.stage
    rows, times, processes = (
        train.batch_size or 1,
        train.gradient_accumulation or 1,
        case.job.hardware.processes,
    )
    group: int | None = getattr(stage, "num_generations", None)
    if group and rows * times * processes % group:
        per_step, fewer = _in_groups(rows, times, processes, group)
        shared = f" x {processes} processes" if processes > 1 else ""
        text = (
            f"train.batch_size {rows} x train.gradient_accumulation {times}{shared} = {rows * times * processes} "
            f"answers a step, which are no whole groups of stage.num_generations {group}; the nearest is "
            f"{per_step * fewer * processes}, such as {per_step} x {fewer}{shared}."
        )
        yield find(
            "batch_not_in_groups",
            "error",
            "train.gradient_accumulation",
            times,
            text,
            train__batch_size=per_step,
            train__gradient_accumulation=fewer,
            **_the_whole(case, per_step * fewer * processes),
        )
    if getattr(stage, "loss", None) == "kto" and rows == 1:  # apo_zero_unpaired estimates no KL
        text = (
            "train.batch_size 1 leaves kto nothing to compare an answer with: its KL estimate pairs the rows of a "
            "batch; take at least 2."
        )
        yield find(
            "kto_batch_of_one",
            "error",
            "train.batch_size",
            1,
            text,
            train__batch_size=2,
            train__gradient_accumulation=max(1, math.ceil(times / 2)),
        )


def _the_whole(case: Case, rows: int) -> dict[str, int]:
    """The change of a job's global batch that goes with a change of its batches, where it names one."""
    return {"train__global_batch_size": rows} if case.job.train.global_batch_size else {}


def _in_groups(rows: int, times: int, processes: int, group: int) -> tuple[int, int]:
    """The batch size and accumulation nearest to these whose answers of all processes are whole groups."""
    least = group // math.gcd(group, processes)
    nearest = max(1, round(rows * times / least)) * least
    per_step = math.gcd(rows, nearest)
    return per_step, nearest // per_step


def _rows_and_batches(case: Case) -> Iterator[Finding]:
    """Fewer rows than one batch; only where all rows were seen."""
    train, stage, seen = case.resolved.train, case.resolved.stage, case.seen
    if not seen["whole"] or not seen["rows"]:
        return
    processes = case.job.hardware.processes
    batch = (train.batch_size or 1) * (train.gradient_accumulation or 1) * processes
    held_out = case.job.data.eval if isinstance(case.job.data.eval, float) else 0.0
    rows = max(1, math.floor(seen["rows"] * (1 - held_out)))
    answers = rows * stage.repeats
    if answers >= batch or getattr(stage, "packing", False):
        return
    told = f"train.batch_size {train.batch_size} x train.gradient_accumulation {train.gradient_accumulation}"
    told += f" x {processes} processes" if processes > 1 else ""
    dropped = stage.repeats > 1 or stage.name == "ppo"
    text = f"The data has {rows:,} rows to train on, fewer than one step takes ({told} = {batch:,}): "
    if dropped:
        size, accumulation = _batch_that_fits(
            answers // processes, stage.repeats, train.batch_size or 1, train.gradient_accumulation or 1
        )
        text += (
            "not even one step would be made; give more prompts, or take batches that fit: "
            f"train.batch_size {size} and train.gradient_accumulation {accumulation}."
        )
        fix = {"train__batch_size": size, "train__gradient_accumulation": accumulation}
        fix |= _the_whole(case, size * accumulation * processes)
        yield find("fewer_rows_than_a_batch", "error", "train.batch_size", train.batch_size, text, **fix)
    elif {"batch_size", "gradient_accumulation", "global_batch_size"} & case.job.train.model_fields_set:
        text += "every epoch is a single, smaller step; take smaller batches."
        yield find("fewer_rows_than_a_batch", "warning", "train.batch_size", train.batch_size, text)


def _batch_that_fits(answers: int, group: int, size: int, accumulation: int) -> tuple[int, int]:
    """The largest batch in whole groups that so many answers fill: per-device size, and accumulation."""
    for fewer in range(accumulation, 0, -1):
        if size * fewer <= answers and size * fewer % group == 0:
            return size, fewer
    return max(group, answers - answers % group), 1


def _steps(case: Case) -> Iterator[Finding]:
    train, seen = case.resolved.train, case.seen
    total = train.max_steps
    if total is None and seen["whole"] and seen["rows"]:
        rows = seen["rows"] * case.resolved.stage.repeats
        total = schedule(train, rows, processes=case.job.hardware.processes).total_steps
    if total is None:
        return
    if case.job.train.max_steps is None and train.warmup is not None and 1 <= total <= train.warmup:
        text = (
            f"train.warmup {train.warmup:g} takes all of the about {total:,} steps, so the peak learning rate is never "
            "reached; lower it, or write a share such as 0.1."
        )
        yield find("warmup_all_the_way", "warning", "train.warmup", train.warmup, text, train__warmup=0.1)
    if train.logging_steps is not None and train.logging_steps > total:
        text = (
            f"train.logging_steps {train.logging_steps:,} is more than the about {total:,} steps of the run: only the "
            "first and the last are written."
        )
        yield find(
            "logging_after_the_end",
            "note",
            "train.logging_steps",
            train.logging_steps,
            text,
            train__logging_steps=max(1, total // 10),
        )
    saves, evaluations = train.save_steps, train.eval_steps
    if train.keep_best and saves and evaluations and saves % evaluations:
        nearest = max(evaluations, round(saves / evaluations) * evaluations)
        text = (
            f"train.save_steps {saves:,} is no multiple of train.eval_steps {evaluations:,}: with train.keep_best an "
            f"evaluation that is the best so far is saved besides; {nearest:,} would save at the same steps."
        )
        yield find("save_and_eval_apart", "note", "train.save_steps", saves, text, train__save_steps=nearest)


def _rate(case: Case) -> Iterator[Finding]:
    rate, stage, method = case.job.train.learning_rate, case.job.stage.name, case.job.method.name
    if rate is None or stage not in PREFERENCE:
        return
    full = method not in ADAPTERS
    own, tuning = (preset_for(name, case.parameters) for name in (stage, "sft"))
    usual, copied = (preset.full_rate if full else preset.lora_rate for preset in (own, tuning))
    if rate >= copied / 2:
        text = (
            f"train.learning_rate {rate:g} is a rate for fine-tuning; {stage} with {method} takes about {usual:g} "
            f"(TRL's documentation), {rate / usual:.0f} times less."
        )
        yield find(
            "learning_rate_of_sft", "warning", "train.learning_rate", rate, text, train__learning_rate=usual
        )


def _model(case: Case) -> Iterator[Finding]:
    shape, place = case.shape, case.model
    stage: Any = case.job.stage
    limit = getattr(stage, "max_length", None) or (
        getattr(stage, "max_prompt_length", 0) + getattr(stage, "max_completion_length", 0)
    )
    longest = case.lengths.longest if case.lengths else limit
    asked = (
        case.lengths is not None
        or "max_length" in stage.model_fields_set
        or hasattr(stage, "max_prompt_length")
    )
    if shape is not None and shape.context and asked and min(longest, limit) > shape.context:
        field = "stage.max_length" if hasattr(stage, "max_length") else "stage.max_completion_length"
        text = (
            f"{case.job.model.name} was made for {shape.context:,} tokens, and rows may be up to {limit:,}: what lies "
            "beyond is read badly or not at all; lower it."
        )
        fix = {"stage__max_length": shape.context} if hasattr(stage, "max_length") else {}
        yield find("longer_than_the_model", "warning", field, limit, text, **fix)
    if place is None or place.folder is None:
        return
    settings = settings_of(place.folder)
    if (
        stage.name == "reward"
        and settings.get("pad_token")
        and settings["pad_token"] == settings.get("eos_token")
    ):
        text = (
            f"{case.job.model.name} pads with its end mark {settings['eos_token']}: the score is read at the token "
            "before it, in training and afterwards alike."
        )
        yield find("pad_is_eos", "note", "model.name", settings["eos_token"], text)
    if case.job.method.name in ("full", "freeze") and _is_quantised(case):
        text = (
            f"The weights of {case.job.model.name} are quantised, and method {case.job.method.name} would have to move "
            "them; use method lora, or the model in full precision."
        )
        yield find("quantised_and_full", "error", "method.name", case.job.method.name, text, method="lora")


def _is_quantised(case: Case) -> bool:
    from core.job.models import read_config
    from data.errors import FactoryError

    assert case.model is not None and case.model.folder is not None
    try:
        return bool(read_config(case.model.folder).get("quantization_config"))
    except FactoryError:
        return False  # `_model` of core.job.checks tells
