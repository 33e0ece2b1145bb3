"""ORPO: fine-tuning and preference in one step, without a reference model (arXiv 2403.07691)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("preference",)
"""Row shapes (data.rows) the stage can train on, best first."""


class Spec(StageSpec):
    """Odds ratio preference optimisation on pairs."""

    name: Literal["orpo"] = "orpo"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt with answer; what is longer is cut at the end and counted."""
    beta: float = Field(0.1, gt=0, le=10)
    """Weight of the odds ratio term (lambda in the paper)."""


def build(context: Context) -> Any:
    """A trl ORPOTrainer (experimental at 1.12) over ready token ids."""
    from core.training.preference import orpo_trainer

    return orpo_trainer(context)
