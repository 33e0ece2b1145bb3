"""Weights that are spread over several processes, gathered where somebody needs them whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def is_spread(model: Any) -> bool:
    """Whether a model holds only a share of its weights (DeepSpeed's stage 3, fsdp2): each forward needs everybody."""
    return any(hasattr(one, "ds_id") or hasattr(one, "full_tensor") for one in model.parameters())


def whole_weights(trainer: Any) -> dict[str, Any] | None:
    """All weights of a trainer's spread model, on the first process; None where the model has them itself.

    Every process must come here.
    """
    if not is_spread(trainer.model):
        return None
    weights: dict[str, Any] = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return weights


def load_weights(trainer: Any, checkpoint: Path) -> None:
    """Take the weights of a checkpoint of this run, whatever shares the work."""
    if trainer.is_deepspeed_enabled:
        from transformers.integrations.deepspeed import deepspeed_load_checkpoint

        deepspeed_load_checkpoint(trainer.model_wrapped, str(checkpoint))
    else:
        trainer._load_from_checkpoint(str(checkpoint))
