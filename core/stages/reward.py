"""Reward modelling: learn a score that puts the better answer above the worse one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "SEQ_CLS"
"""What the model is for, in the words of peft: a classifier with one label, the score."""
NEEDS = ("preference",)
"""Row shapes (data.rows) the stage can train on, best first."""


class Spec(StageSpec):
    """A reward model by the Bradley-Terry loss: -log sigmoid(score of chosen - score of rejected)."""

    name: Literal["reward"] = "reward"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt with answer; pairs whose answers are the same after cutting are dropped and counted."""
    margin: bool = False
    """Ask for the distance of the two answers' ratings (a margin or score column), not only for the order."""
    center: float | None = Field(None, ge=0, le=10)
    """Weight of a term that keeps scores around zero (arXiv 2312.09244, eq. 2); 0.01 is usual. Empty: none."""


def build(context: Context) -> Any:
    """A trl RewardTrainer over ready token ids."""
    from core.training.preference import reward_trainer

    return reward_trainer(context)
