"""Supervised fine-tuning: learn to give the answers in the data. The assistant's turns teach, unless told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("messages", "completion", "text")
"""Row shapes (data.rows) the stage can train on, best first."""


class Spec(StageSpec):
    """Supervised fine-tuning on chats, prompt-completion pairs or plain text."""

    name: Literal["sft"] = "sft"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest row; what is longer is cut at the end and counted. Memory grows with it."""
    packing: bool = False
    """Put several short rows into one sequence of max_length (best fit); rows do not see each other."""
    train_on: Literal["assistant", "last_assistant", "all"] = "assistant"
    """Which tokens teach: every assistant turn, only the last one, or everything including the prompts."""
    loss: Literal["nll", "dft"] = "nll"
    """nll: cross entropy. dft: dynamic fine-tuning (arXiv 2508.05629), weighs each token by its own probability."""


def build(context: Context) -> Any:
    """A trl SFTTrainer over ready token ids and labels."""
    from core.training.language_modeling import language_modeling_trainer

    spec = context.job.stage
    assert isinstance(spec, Spec)
    return language_modeling_trainer(context, packing=spec.packing, loss=spec.loss)
