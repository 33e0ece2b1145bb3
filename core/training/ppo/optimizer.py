"""One optimizer and one schedule over policy and value model, by the names that every stage takes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer, TrainingArguments, get_scheduler

from core.job.schedule import Schedule


def make_optimizer(arguments: TrainingArguments, policy: Any, value: Any, value_rate: float | None) -> Any:
    """The job's optimizer over all that is trained; biases and norms do not decay, as in transformers' Trainer."""
    groups = [
        *_groups(policy, arguments.learning_rate, arguments.weight_decay),
        *_groups(
            value, arguments.learning_rate if value_rate is None else value_rate, arguments.weight_decay
        ),
    ]
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments, policy)
    return kind(groups, **settings)


def _groups(model: Any, rate: float, decay: float) -> list[dict[str, Any]]:
    decays = set(Trainer.get_decay_parameter_names(None, model))
    trained = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    groups = [
        {"params": [one for name, one in trained if name in decays], "lr": rate, "weight_decay": decay},
        {"params": [one for name, one in trained if name not in decays], "lr": rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_scheduler(arguments: TrainingArguments, optimizer: Any, schedule: Schedule) -> Any:
    """The job's schedule of learning rates; a step is an update on one batch of answers."""
    return get_scheduler(
        arguments.lr_scheduler_type,
        optimizer=optimizer,
        num_warmup_steps=schedule.warmup_steps,
        num_training_steps=schedule.total_steps,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
    )


def clip(model: Any, most: float) -> float:
    """Scale the gradients of a model down to the norm `most` (0: leave them); the norm they had.

    Policy and value model are clipped apart: the errors of a fresh value model would drown the policy's gradients.
    """
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if most > 0:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm)
    return float(norm)
