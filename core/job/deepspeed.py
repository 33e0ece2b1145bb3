"""The DeepSpeed settings of a job: made from the job, or a JSON of the user's own that says nothing else. No torch.

Names and meanings: DeepSpeed 0.19's configuration JSON. "auto" is filled by transformers 5.17 from the trainer's own
arguments (integrations/deepspeed.py), so that a number stands in one place only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from core.job.spec import JobSpec
from data.errors import refuse

LARGEST = 2**20
"""Bytes of a configuration; real ones have a few thousand."""
AUTO = "auto"
CPU_ADAM = ("adamw_torch", "adamw_torch_fused")
"""Optimizers for which DeepSpeed's own Adam on the CPU stands in when states are offloaded."""


def deepspeed_settings(job: JobSpec, *, half: str) -> dict[str, Any]:
    """DeepSpeed's configuration for a resolved job; `half` is bf16, fp16 or empty for fp32.

    Raises FactoryError when the user's own file cannot be read.
    """
    stage, offload = job.hardware.zero, job.hardware.offload
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": False, "contiguous_gradients": True}
    if stage == 3:
        # Without it a saved model has no safetensors: its shards lie in the checkpoint's own format.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    made: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": AUTO,
        "train_batch_size": AUTO,
        "gradient_accumulation_steps": AUTO,
        "gradient_clipping": AUTO,
        "bf16": {"enabled": half == "bf16"},
        "fp16": {"enabled": half == "fp16"},
        "zero_optimization": zero,
        "steps_per_print": 2**31 - 1,  # the run's own log tells
    }
    if offload and job.train.optimizer in CPU_ADAM:
        made["optimizer"] = {
            "type": "AdamW",
            "params": {"lr": AUTO, "betas": AUTO, "eps": AUTO, "weight_decay": AUTO},
        }
    else:
        made["zero_allow_untested_optimizer"] = True  # the trainer's own optimizer, whichever it is
    return _over(made, own_settings(job))


def own_settings(job: JobSpec) -> dict[str, Any]:
    """What the user's own JSON says; empty without one. Raises FactoryError when it cannot be read."""
    name = job.hardware.deepspeed_config
    if name is None:
        return {}
    from data.userpath import user_path

    path = user_path(name)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error)) from error
    if len(content) > LARGEST:
        raise _unreadable(name, "it is larger than 1 MiB")
    try:
        told = json.loads(content)
    except ValueError as error:
        raise _unreadable(name, f"it is no JSON: {error}") from error
    if not isinstance(told, dict):
        raise _unreadable(name, "it holds no settings in braces")
    return told


def _unreadable(name: str, why: str) -> Exception:
    text = f"hardware.deepspeed_config {name!r} cannot be used ({why}); correct it, or leave it empty."
    return refuse("deepspeed_config_unreadable", text, field="hardware.deepspeed_config", value=name)


def _over(made: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings made from the job with the user's own laid over them."""
    both = dict(made)
    for key, value in own.items():
        inner = both.get(key)
        both[key] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def contradictions(job: JobSpec, own: Mapping[str, Any], *, half: str) -> Iterator[tuple[str, Any, str, Any]]:
    """Where the user's own settings say other than the resolved job: key, its value, the job's field, its value."""
    for key, field, wanted in _meant(job, half):
        told = _at(own, key)
        if told not in (None, AUTO) and not _same(told, wanted):
            yield key, told, field, wanted
    yield from _optimizer(job, own)
    if own.get("scheduler"):
        kind = own["scheduler"].get("type") if isinstance(own["scheduler"], dict) else own["scheduler"]
        yield "scheduler", kind, "train.scheduler", job.train.scheduler


def _meant(job: JobSpec, half: str) -> Iterator[tuple[str, str, Any]]:
    """Keys that say what a field of the job says, with the field and its value."""
    train, hardware = job.train, job.hardware
    batch = (train.batch_size or 1) * (train.gradient_accumulation or 1) * hardware.processes
    precision = "hardware.precision"
    yield "train_micro_batch_size_per_gpu", "train.batch_size", train.batch_size
    yield "gradient_accumulation_steps", "train.gradient_accumulation", train.gradient_accumulation
    yield "train_batch_size", "train.batch_size x train.gradient_accumulation x processes", batch
    yield "gradient_clipping", "train.max_grad_norm", train.max_grad_norm
    yield "zero_optimization.stage", "hardware.strategy", hardware.zero
    yield "bf16.enabled", precision, half == "bf16"
    yield "fp16.enabled", precision, half == "fp16"
    offload = "cpu" if hardware.offload else "none"
    yield "zero_optimization.offload_optimizer.device", "hardware.offload", offload
    if hardware.zero == 3:
        yield "zero_optimization.offload_param.device", "hardware.offload", offload
        yield "zero_optimization.stage3_gather_16bit_weights_on_model_save", "hardware.strategy", True


def _optimizer(job: JobSpec, own: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    """An optimizer of DeepSpeed's own is only the job's when it is the same kind with the same numbers."""
    if "optimizer" not in own:
        return
    kind, train = _at(own, "optimizer.type"), job.train
    if kind not in ("Adam", "AdamW") or train.optimizer not in CPU_ADAM:
        yield "optimizer.type", kind, "train.optimizer", train.optimizer
    for key, field, wanted in (
        ("lr", "train.learning_rate", train.learning_rate),
        ("weight_decay", "train.weight_decay", train.weight_decay),
    ):
        told = _at(own, f"optimizer.params.{key}")
        if told not in (None, AUTO) and not _same(told, wanted):
            yield f"optimizer.params.{key}", told, field, wanted


def _at(settings: Mapping[str, Any], key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _same(told: Any, wanted: Any) -> bool:
    if isinstance(told, bool) or isinstance(wanted, bool):
        return told is wanted
    return bool(told == wanted)
