"""Defaults per stage, method, model size and machine, with their sources. What the user set is never touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.job.spec import JobSpec, TrainSpec


@dataclass(frozen=True)
class Preset:
    """Learning rates for adapters and for all weights, and the schedule that goes with them."""

    lora_rate: float
    full_rate: float
    epochs: float
    effective_batch: int
    scheduler: str
    warmup: float
    source: str


_BILLION = 1_000_000_000

# Rows: stage -> (largest model in parameters, preset). The first row that holds the model counts.
# The rule behind the rates: LoRA about 10x full fine-tuning (TRL docs, peft integration; "LoRA Without Regret").
PRESETS: dict[str, tuple[tuple[float, Preset], ...]] = {
    "sft": (
        (4 * _BILLION, Preset(2e-4, 2e-5, 3, 16, "cosine", 0.1, "TRL docs; Unsloth guide; Axolotl examples")),
        (20 * _BILLION, Preset(2e-4, 1e-5, 2, 16, "cosine", 0.1, "TRL docs; Axolotl examples")),
        (float("inf"), Preset(1e-4, 5e-6, 1, 16, "cosine", 0.1, "TRL docs; Oumi recipes")),
    ),
    "reward": ((float("inf"), Preset(1e-4, 1e-5, 1, 64, "linear", 0.05, "TRL RewardConfig and its guide")),),
    "dpo": ((float("inf"), Preset(5e-6, 5e-7, 1, 32, "cosine", 0.1, "TRL docs: DPO trainer, 5e-7 full")),),
    "kto": ((float("inf"), Preset(5e-6, 5e-7, 1, 32, "cosine", 0.1, "TRL docs: stay inside 5e-7 to 5e-6")),),
    "ppo": (
        (
            float("inf"),
            Preset(1e-5, 1e-6, 1, 64, "linear", 0.0, "NeMo, TRL PPOConfig; LoRA by the rule of ten"),
        ),
    ),
    "grpo": (
        (float("inf"), Preset(1e-5, 1e-6, 1, 64, "constant", 0.0, "TRL GRPOConfig; LoRA Without Regret")),
    ),
    "rloo": (
        (float("inf"), Preset(1e-5, 1e-6, 1, 64, "constant", 0.0, "TRL RLOOConfig; LoRA by the rule of ten")),
    ),
    "orpo": (
        (float("inf"), Preset(1e-5, 1e-6, 2, 32, "linear", 0.1, "TRL ORPOConfig; LoRA by the rule of ten")),
    ),
    "pretrain": (
        (float("inf"), Preset(5e-5, 2e-5, 1, 32, "cosine", 0.05, "Unsloth guide, continued pretraining")),
    ),
}


def preset_for(stage: str, parameters: int | None) -> Preset:
    """The preset of a stage for a model of that many parameters; an unknown size counts as small."""
    rows = PRESETS[stage]
    return next(preset for limit, preset in rows if (parameters or 0) <= limit)


@dataclass(frozen=True)
class Resolved:
    """A job with every preset filled in, and which dotted fields were."""

    job: JobSpec
    defaults: tuple[str, ...]
    source: str


def resolve(job: JobSpec, *, parameters: int | None, gpu: bool) -> Resolved:
    """Fill what the user left empty. Pure: the same job, size and kind of machine give the same result.

    Step counts (logging, saving, evaluating) stay empty here: they follow the length of the run, which is known
    once the rows are counted.
    """
    preset = preset_for(job.stage.name, parameters)
    train = job.train
    rate = preset.full_rate if job.method.name == "full" else preset.lora_rate
    # What one process is left with: the same job has the same effective batch on any number of them.
    effective = (train.global_batch_size or preset.effective_batch) / job.hardware.processes
    batch = train.batch_size or _batch_size(train, effective)
    wanted: dict[str, Any] = {
        "epochs": preset.epochs if train.max_steps is None else None,
        "batch_size": batch,
        "gradient_accumulation": max(1, round(effective / batch)),
        "learning_rate": rate,
        "scheduler": preset.scheduler,
        "warmup": preset.warmup,
        "gradient_checkpointing": gpu,
    }
    filled = {
        key: value for key, value in wanted.items() if getattr(train, key) is None and value is not None
    }
    values = {key: getattr(train, key) for key in type(train).model_fields} | filled
    hardware = job.hardware.model_copy(update={"strategy": job.hardware.sharing})
    resolved = job.model_copy(update={"train": type(train).model_validate(values), "hardware": hardware})
    untouched = tuple(sorted(f"train.{key}" for key in filled)) + _left_alone(job)
    return Resolved(resolved, tuple(sorted(set(untouched))), preset.source)


def _batch_size(train: TrainSpec, effective: float) -> int:
    """Rows per process that reach the effective batch: 4, or what the user's accumulation leaves.

    A batch that the user asked for is met exactly, by the largest size up to 4 that divides it.
    """
    if train.gradient_accumulation is not None:
        return max(1, round(effective / train.gradient_accumulation))
    largest = max(1, min(4, round(effective)))
    if train.global_batch_size is None:
        return largest
    return next(size for size in range(largest, 0, -1) if round(effective) % size == 0)


def _left_alone(job: JobSpec) -> tuple[str, ...]:
    """Dotted names of the fields that hold their default because the user did not write them."""
    names: list[str] = []
    for part in type(job).model_fields:
        value = getattr(job, part)
        if part not in job.model_fields_set and not hasattr(value, "model_fields_set"):
            names.append(part)
        elif hasattr(value, "model_fields_set"):
            names += [
                f"{part}.{key}" for key in type(value).model_fields if key not in value.model_fields_set
            ]
    return tuple(name for name in names if not name.endswith(".name"))
