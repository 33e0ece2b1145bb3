"""The trainer settings that every stage shares, from the job: one mapping, nothing silently dropped."""

from __future__ import annotations

from typing import Any

from core.job.deepspeed import deepspeed_settings
from core.job.fsdp import fsdp_settings
from core.job.spec import JobSpec
from core.training.context import Context


def common_arguments(context: Context) -> dict[str, Any]:
    """Keyword arguments for any TRL config class at 1.12 (all derive from transformers.TrainingArguments 5.17)."""
    train, schedule = context.job.train, context.schedule
    precision = context.job.hardware.precision
    fp16 = precision == "fp16"
    bf16 = precision == "bf16" or (precision == "auto" and context.gpu and _gpu_has_bf16())
    return {
        "output_dir": str(context.output_dir),
        "num_train_epochs": train.epochs or 1,
        "max_steps": schedule.total_steps,
        "per_device_train_batch_size": train.batch_size,
        "per_device_eval_batch_size": train.batch_size,
        "gradient_accumulation_steps": train.gradient_accumulation,
        "learning_rate": train.learning_rate,
        "lr_scheduler_type": train.scheduler,
        "lr_scheduler_kwargs": _scheduler_options(context),
        "warmup_steps": schedule.warmup_steps,
        "neftune_noise_alpha": train.neftune_alpha,
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.max_grad_norm,
        "optim": train.optimizer,
        "seed": train.seed,
        "gradient_checkpointing": train.gradient_checkpointing,
        "use_cpu": not context.gpu,
        "bf16": bf16,
        "fp16": fp16,
        "logging_steps": schedule.logging_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # the default True hides a NaN loss from every log
        "save_strategy": "steps",
        "save_steps": schedule.save_steps,
        "save_total_limit": None,  # retention is ours: the library may delete the only whole checkpoint
        "eval_strategy": "steps" if context.eval_rows is not None else "no",
        "eval_steps": schedule.eval_steps,
        "report_to": list(context.job.report_to) or "none",
        "run_name": context.output_dir.parent.name,
        "disable_tqdm": True,
        "trust_remote_code": False,
        **sharing_arguments(context.job, gpu=context.gpu, half="bf16" if bf16 else precision if fp16 else ""),
    }


def sharing_arguments(job: JobSpec, *, gpu: bool, half: str) -> dict[str, Any]:
    """What the trainer is told of the other processes; nothing for one alone. `half` is bf16, fp16 or empty."""
    hardware = job.hardware
    if hardware.sharing == "none":
        return {}
    told: dict[str, Any] = {
        "ddp_backend": "nccl" if gpu else "gloo",
        "ddp_find_unused_parameters": False,  # no stage leaves a trained weight out of its loss
    }
    if hardware.zero:
        told["deepspeed"] = deepspeed_settings(job, half=half)
    if hardware.sharing == "fsdp2":
        told |= fsdp_settings(job)
    return told


def _scheduler_options(context: Context) -> dict[str, Any]:
    """What the scheduler is told besides warmup and length, in the words of transformers 5.17's optimization.py."""
    train, schedule = context.job.train, context.schedule
    if train.scheduler == "cosine_with_restarts":
        return {"num_cycles": train.scheduler_cycles}
    if train.scheduler == "cosine_with_min_lr":
        return {"min_lr_rate": train.scheduler_floor}
    if train.scheduler == "warmup_stable_decay":
        decay = max(1, round(train.scheduler_decay * schedule.total_steps))
        return {"num_decay_steps": decay, "min_lr_ratio": train.scheduler_floor}
    return {}


def _gpu_has_bf16() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
