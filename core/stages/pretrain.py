"""Continued pretraining: learn the language of raw text. Every token teaches; documents are packed to full length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("text",)
"""Row shapes (data.rows) the stage can train on, best first."""


class Spec(StageSpec):
    """Continued pretraining on raw text, an end-of-text token between documents."""

    name: Literal["pretrain"] = "pretrain"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Length of a training sequence; longer documents are split, nothing is thrown away."""
    packing: bool = True
    """Fill each sequence with whole documents (best fit); documents do not see each other."""


def build(context: Context) -> Any:
    """A trl SFTTrainer over ready token ids whose labels are the ids themselves."""
    from core.training.language_modeling import language_modeling_trainer

    spec = context.job.stage
    assert isinstance(spec, Spec)
    return language_modeling_trainer(context, packing=spec.packing, loss="nll")
