"""From a job to the PPO loop."""

from __future__ import annotations

from typing import Any

from transformers import TrainingArguments

from core.stages import ppo
from core.training.arguments import common_arguments
from core.training.context import Context
from core.training.online import scorers_for
from core.training.ppo.loop import PPO
from core.training.ppo.models import reference_model, value_model, without_dropout
from core.training.ppo.scoring import Rewards
from data.errors import Finding


def ppo_trainer(context: Context) -> PPO:
    """The loop with the job's rewards and a value model; the reference is the policy without its adapter, or a copy.

    Raises FactoryError for a reward or a value model that cannot be used.
    """
    spec = context.job.stage
    assert isinstance(spec, ppo.Spec)
    scorers = scorers_for(context)
    value = value_model(context, scorers)
    reference = reference_model(context)
    if without_dropout([context.model, value, *([reference] if reference is not None else [])]):
        context.emit(
            Finding(
                "dropout_off",
                "dropout is switched off for stage ppo: with it, the ratio of new to old policy would be noise.",
                "note",
                "method.dropout",
            )
        )
    rewards = Rewards(
        scorers,
        context.tokenizer,
        at_once=spec.local_rollout_forward_batch_size,
        cut_penalty=spec.missing_eos_penalty or 0.0,
    )
    for callback in context.callbacks:
        callback.expect_checkpoint_bytes(_bytes([context.model, value]))
    arguments = common_arguments(context)
    arguments.pop("trust_remote_code")  # a word of trl's configs; nothing is loaded with it here
    return PPO(context, TrainingArguments(**arguments), rewards, value, reference)


def _bytes(models: list[Any]) -> int:
    """Bytes of a checkpoint: what is trained in its own precision, and two fp32 optimizer states for it."""
    trained = [one for model in models for one in model.parameters() if one.requires_grad]
    return sum(one.numel() * (one.element_size() + 8) for one in trained)
