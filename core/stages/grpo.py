"""GRPO: the model answers each prompt several times and learns from the answers that beat their group."""

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
CISPO_HIGHEST = 5.0


class Spec(SamplingSpec):
    """Group relative policy optimisation (arXiv 2402.03300) on prompts, with rewards."""

    name: Literal["grpo"] = "grpo"
    """The stage."""
    loss: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo"] = "dapo"
    """How token losses are added up; names as in trl 1.12. dapo (arXiv 2503.14476) has no bias towards length."""
    importance_sampling: Literal["token", "sequence"] = "token"
    """Ratio of new to old policy for each token, or for the whole answer (GSPO, arXiv 2507.18071, with loss grpo)."""
    epsilon: float = Field(0.2, gt=0, le=100)
    """How far the ratio may fall, and rise where epsilon_high is empty, before it is clipped."""
    epsilon_high: float | None = Field(None, gt=0, le=100)
    """How far the ratio may rise; DAPO takes 0.28. With loss cispo the ratio's highest value itself, empty: 5."""
    beta: float = Field(0.0, ge=0, le=10)
    """KL coefficient. 0 needs no reference model; 0.001 to 0.04 where the model drifts away."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the spread of the group, of the batch, or not (arXiv 2503.20783)."""

    @property
    def highest(self) -> float | None:
        """The bound above in trl 1.12's words; for cispo what its documentation recommends (arXiv 2510.13786), as
        its default would cut every ratio, which is about 1, to 0.2."""
        return CISPO_HIGHEST if self.epsilon_high is None and self.loss == "cispo" else self.epsilon_high


def build(context: Context) -> Any:
    """A trl GRPOTrainer over ready prompt ids, with the job's rewards."""
    from core.training.online import grpo_trainer

    return grpo_trainer(context)
