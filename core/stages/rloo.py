"""RLOO and REINFORCE++: policy gradient with the other answers to the same prompt as the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.stages.sampling import SamplingSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("prompt",)
"""Row shapes (data.rows) the stage can train on, best first."""
REWARDED = True
"""Whether the stage learns from the job's rewards."""


class Spec(SamplingSpec):
    """REINFORCE leave-one-out (arXiv 2402.14740) on prompts, with rewards."""

    name: Literal["rloo"] = "rloo"
    """The stage."""
    algorithm: Literal["rloo", "reinforce++"] = "rloo"
    """rloo, or reinforce++: RLOO with normalised advantages, that is REINFORCE++-baseline (arXiv 2501.03262)."""
    num_generations: int = Field(2, ge=2, le=1024)
    """Answers to each prompt; each one's baseline is the mean of the others, so at least 2."""
    beta: float = Field(0.05, ge=0, le=10)
    """KL coefficient, taken off the reward; 0 needs no reference model."""
    epsilon: float = Field(0.2, gt=0, le=100)
    """How far the ratio of new to old policy may move before it is clipped."""


def build(context: Context) -> Any:
    """A trl RLOOTrainer over ready prompt ids, with the job's rewards."""
    from core.training.online import rloo_trainer

    return rloo_trainer(context)
