"""KTO: learn from single answers with a thumb up or down (arXiv 2402.01306)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("feedback",)
"""Row shapes (data.rows) the stage can train on, best first."""


class Spec(StageSpec):
    """Kahneman-Tversky optimisation on answers with a good or bad label."""

    name: Literal["kto"] = "kto"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt with answer; what is longer is cut at the end and counted."""
    loss: Literal["kto", "apo_zero_unpaired"] = "kto"
    """kto, or APO-zero for single answers (arXiv 2408.06266), which needs no KL estimate."""
    beta: float = Field(0.1, gt=0, le=100)
    """How firmly the model stays near the reference; larger is firmer."""
    desirable_weight: float = Field(1.0, gt=0, le=100)
    """Weight of good answers; weight x count of good to bad should lie between 1:1 and 4:3 (paper, eq. 8)."""
    undesirable_weight: float = Field(1.0, gt=0, le=100)
    """Weight of bad answers."""


def build(context: Context) -> Any:
    """A trl KTOTrainer over ready token ids."""
    from core.training.preference import kto_trainer

    return kto_trainer(context)
