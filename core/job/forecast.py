"""What a job will take before it starts: memory by part, time, disk, whether it fits, and the change that makes it fit.

Pure arithmetic on the job, the model's shape and the machine; no torch. Memory: core/job/memory.py, time:
core/job/calibration.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from core.job.calibration import START, pace
from core.job.exports import export_bytes
from core.job.machine import Machine
from core.job.memory import (
    ONLINE,
    PAIRS,
    Batch,
    Memory,
    Place,
    Strategy,
    heaviest_batch,
    memory,
    trained_weights,
)
from core.job.schedule import smaller_batches
from core.job.shape import ModelShape
from core.job.spec import JobSpec
from core.methods import ADAPTERS, METHODS

Verdict = Literal["fits", "tight", "too large"]
TIGHT, TOO_LARGE = 0.9, 1.1
"""Shares of the memory from which a forecast is tight, and beyond which it is no longer the forecast's own error."""


class Forecast(BaseModel):
    """What a run will take. Bytes, seconds, steps and tokens; None where it is not known yet."""

    model_config = ConfigDict(frozen=True)

    memory: dict[str, int]
    """Memory of one device at its fullest, by part."""
    memory_total: int
    """Sum of the parts."""
    moment: str
    """When memory is fullest: forward, backward or generating."""
    available: int
    """Memory of the smallest device asked for."""
    device: str
    """cpu, or the GPU's name."""
    host: int = 0
    """What lies in the memory of each machine beside what its devices hold: offloaded states, moved activations."""
    host_available: int = 0
    """Memory of this machine."""
    verdict: Verdict
    change: dict[str, Any] | None = None
    """The cheapest change of the job that fits, where it does not."""
    lengths: Literal["counted", "estimated", "longest"]
    """What the lengths of rows rest on: the tokenizer, a look at the first rows' characters, or the limits alone."""
    measured: bool = False
    """Whether memory and the time of a step were measured by one real step (--probe)."""
    trained: int
    """Weights that move."""
    flops_per_token: float
    """Arithmetic for one token of training."""
    tokens: int | None
    """Tokens of the whole run."""
    seconds: float | None
    """From the start to the last step."""
    runs: int
    """Finished runs on which the time rests; 0: a guess."""
    checkpoint_bytes: int
    model_bytes: int
    export_bytes: int = 0
    """What the job's exports take beside the model."""
    disk_bytes: int
    """At its fullest: kept checkpoints, one being written, the model, the exports."""


@dataclass(frozen=True)
class Lengths:
    """How long the rows are, in tokens."""

    longest: int
    mean: float
    rows: int | None
    """Training sequences per epoch; None when only the first rows were looked at."""
    source: Literal["counted", "estimated"]


def forecast(
    job: JobSpec,
    shape: ModelShape,
    machine: Machine,
    home: Path,
    *,
    lengths: Lengths | None = None,
    steps: int | None = None,
) -> Forecast:
    """The forecast of a resolved job. The same inputs give the same forecast."""
    place = place_of(job, machine)
    batch = batch_of(job, lengths)
    needed = memory(job, shape, batch, place)
    available, device = device_of(job, machine)
    verdict = judge(needed.total, available)
    change = None if verdict == "fits" else cheapest_change(job, shape, place, lengths, available)
    work = flops_per_token(job, shape, batch.longest)
    known = pace(home, device, machine.cores, job.stage.name, job.method.name, job.engine.name)
    tokens = _tokens(job, lengths, steps)
    checkpoint, model = disk_bytes(job, shape)
    exports = export_bytes(job, shape.parameters, trained_weights(job, shape))
    return Forecast(
        memory={name: round(size) for name, size in needed.parts.items()},
        memory_total=round(needed.total),
        moment=needed.moment,
        available=available,
        device=device,
        host=round(needed.host / job.hardware.nodes),
        host_available=machine.memory,
        verdict=verdict,
        change=change,
        lengths=lengths.source if lengths else "longest",
        trained=trained_weights(job, shape),
        flops_per_token=work,
        tokens=tokens,
        seconds=None
        if tokens is None
        else known.start + tokens * work / (known.flops * _at_once(job, device)),
        runs=known.runs,
        checkpoint_bytes=checkpoint,
        model_bytes=model,
        export_bytes=exports,
        disk_bytes=checkpoint * (job.train.keep_checkpoints + 1 + job.train.keep_best) + model + exports,
    )


def measured(told: Forecast, seen: Mapping[str, Any], *, steps: int | None, mean: float | None) -> Forecast:
    """The forecast with what a probe saw instead: memory, seconds of a step on the longest rows.

    `mean` is the mean length of the rows; an ordinary step takes as much less time as its rows are shorter.
    """
    needed = int(seen["memory"])
    share = min(1.0, mean / seen["longest"]) if mean and seen["longest"] else 1.0
    start = START["cpu" if told.device == "cpu" else "gpu"]
    seconds = None if steps is None else start + steps * seen["step_seconds"] * share
    verdict = judge(needed, told.available)
    changed: dict[str, Any] = {
        "memory": {},
        "memory_total": needed,
        "measured": True,
        "verdict": verdict,
        "seconds": seconds,
    }
    return told.model_copy(update={**changed, "change": None if verdict == "fits" else told.change})


def place_of(job: JobSpec, machine: Machine) -> Place:
    """Where a job runs, by the rules of core.training.model and core.training.arguments."""
    room = device_of(job, machine)[0]
    return Place(machine.has_gpu, bool(half_of(job, machine)), strategy_of(job), room)


def half_of(job: JobSpec, machine: Machine) -> str:
    """The 16-bit arithmetic of a job on a machine, bf16 or fp16; empty for fp32."""
    precision, gpus = job.hardware.precision, machine.gpus
    if precision in ("bf16", "fp16"):
        return precision
    able = bool(gpus) and all(gpu.compute >= 8.0 for gpu in gpus)
    return "bf16" if precision == "auto" and able else ""


def strategy_of(job: JobSpec) -> Strategy:
    """How the job's hardware shares training out."""
    hardware = job.hardware
    return Strategy(hardware.sharing, hardware.processes, hardware.offload)


def device_of(job: JobSpec, machine: Machine) -> tuple[int, str]:
    """Bytes and name of the smallest device that one process of a job may get; processes on a CPU share its memory."""
    hardware = job.hardware
    named = hardware.devices if isinstance(hardware.devices, list) else None
    wanted = [gpu for gpu in machine.gpus if named is None or gpu.index in named]
    if not wanted:
        return machine.memory // hardware.per_node, "cpu"
    smallest = min(wanted, key=lambda gpu: gpu.memory)
    return smallest.memory, smallest.name


def batch_of(job: JobSpec, lengths: Lengths | None) -> Batch:
    """The heaviest batch of a job whose rows are that long."""
    if lengths is None:
        return heaviest_batch(job)
    return heaviest_batch(job, longest=lengths.longest, mean=lengths.mean)


def judge(needed: float, available: float) -> Verdict:
    """Whether so much memory is there."""
    share = needed / max(1, available)
    return "too large" if share > TOO_LARGE else "tight" if share > TIGHT else "fits"


def flops_per_token(job: JobSpec, shape: ModelShape, length: int) -> float:
    """Floating point operations for each token a trainer counts (arXiv 2001.08361, section 2.1).

    2 a weight forward, 2 back to the inputs, 2 for weights that move, 2 again with gradient checkpointing; and
    attention, which grows with the length.
    """
    forward = 2.0 * shape.active + 2.0 * shape.layers * shape.heads * shape.head_dim * length
    passes = 2.0 + (job.method.name not in ADAPTERS) + bool(job.train.gradient_checkpointing)
    stage = job.stage
    if stage.name in ("dpo", "kto"):
        passes += 1
    if stage.name == "kto":
        passes += 2  # the mismatched answers, asked of both
    if stage.name in ONLINE:
        passes += 1 + (getattr(stage, "beta", 0) > 0)
        passes *= getattr(stage, "num_ppo_epochs", 1) * getattr(stage, "num_iterations", 1)
    return forward * passes


def _at_once(job: JobSpec, device: str) -> int:
    """How many devices work side by side: a pace is that of one GPU, or of a whole CPU."""
    return job.hardware.nodes if device == "cpu" else job.hardware.processes


def _tokens(job: JobSpec, lengths: Lengths | None, steps: int | None) -> int | None:
    if lengths is None or steps is None:
        return None
    train, stage = job.train, job.stage
    rows = steps * (train.batch_size or 1) * (train.gradient_accumulation or 1) * job.hardware.processes
    if train.max_steps is None and lengths.rows is not None:
        rows = round((train.epochs or 1) * lengths.rows * stage.repeats)
    answer = stage.max_completion_length if stage.name in ONLINE else 0  # type: ignore[attr-defined]
    return math.ceil(rows * (lengths.mean + answer) * (2 if stage.name in PAIRS else 1))


def disk_bytes(job: JobSpec, shape: ModelShape) -> tuple[int, int]:
    """Bytes of a checkpoint (fp32 weights that move, and their two moments) and of the finished model."""
    trained = trained_weights(job, shape)
    whole = job.method.name not in ADAPTERS
    weights = 4 * (shape.parameters if whole else trained)
    value = (
        shape.parameters if job.stage.name == "ppo" else 0
    )  # the value model is trained in full and kept too
    return weights + 8 * trained + 12 * value, weights


def cheapest_change(
    job: JobSpec, shape: ModelShape, place: Place, lengths: Lengths | None, available: float
) -> dict[str, Any] | None:
    """The first change that fits, from what costs only time to what costs quality; None when none does."""
    for change in changes(job, place):
        changed = changed_job(job, change)
        there = replace(place, strategy=strategy_of(changed))
        needed = memory(changed, shape, batch_of(changed, lengths), there)
        if judge(needed.total, available) == "fits":
            return without_what_stays(job, change)
    return None


def changes(job: JobSpec, place: Place) -> Iterator[dict[str, Any]]:
    """Changes that save memory, the cheapest first; each keeps what was tried before it."""
    batch, accumulation = job.train.batch_size or 1, job.train.gradient_accumulation or 1
    change: dict[str, Any] = {}
    for size, times in smaller_batches(batch, accumulation, least=2 if job.stage.name == "kto" else 1):
        change = {"train.batch_size": size, "train.gradient_accumulation": times}
        yield change
    for extra in _steps_down(job, place):
        change = {**change, **extra}
        yield change


def _steps_down(job: JobSpec, place: Place) -> Iterator[dict[str, Any]]:
    if place.gpu and place.strategy.name == "ddp" and job.method.name != "qlora":
        yield {"hardware.strategy": "deepspeed-2"}
        yield {"hardware.strategy": "deepspeed-3"}
    if not job.train.gradient_checkpointing:
        yield {"train.gradient_checkpointing": True}
    if place.gpu and job.method.name == "full":
        yield {"train.optimizer": "adamw_bnb_8bit"}
    if job.method.name in ("full", "freeze"):
        yield {"method": "lora", "train.optimizer": job.train.optimizer}
    if job.method.name != "qlora":
        whole = (
            {"hardware.strategy": "ddp"} if place.strategy.name == "ddp" else {}
        )  # 4 bits are not shared out
        yield {"method": "qlora", "train.optimizer": job.train.optimizer, **whole}
    field = "max_completion_length" if job.stage.name in ONLINE else "max_length"
    length = getattr(job.stage, field) // 2
    while length >= 256:
        yield {f"stage.{field}": length}
        length //= 2


def changed_job(job: JobSpec, change: Mapping[str, Any]) -> JobSpec:
    """The job with dotted fields changed; a method's name alone means that method with its defaults."""
    parts: dict[str, Any] = {}
    for name, value in change.items():
        part, _, key = name.partition(".")
        if not key:
            parts[part] = METHODS.named(value).Spec()
        else:
            parts[part] = parts.get(part, getattr(job, part)).model_copy(update={key: value})
    return job.model_copy(update=parts)


def without_what_stays(job: JobSpec, change: Mapping[str, Any]) -> dict[str, Any]:
    """A change without the fields that would keep their value."""
    kept = {}
    for name, value in change.items():
        part, _, key = name.partition(".")
        now = getattr(getattr(job, part), key) if key else getattr(job, part).name
        if now != value:
            kept[name] = value
    return kept


def fullest(parts: Memory | Mapping[str, float]) -> str:
    """The name of the largest part that a change of the job could make smaller."""
    sizes = dict(parts.parts if isinstance(parts, Memory) else parts)
    sizes.pop("framework", None)
    return max(sizes, key=lambda name: sizes[name])
