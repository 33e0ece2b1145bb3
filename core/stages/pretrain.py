"""Continued pretraining: learn the language of raw text. Every token teaches; documents are packed to full length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec
from data.errors import Finding

if TYPE_CHECKING:
    from core.job.spec import JobSpec
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


RICH = {"method.rank": 128, "method.alpha": 32, "method.rslora": True}
"""What an adapter for new knowledge is usually given (Unsloth's guide to continued pretraining; rsLoRA,
arXiv 2312.03732): more of it than a change of manner needs, and a scale that bears the rank."""


def look(job: JobSpec, home: Path) -> Iterator[Finding]:
    """A note on an adapter that nobody chose the size of: its default is meant for fine-tuning."""
    method: Any = job.method
    chosen = method.model_fields_set & {"rank", "alpha", "rslora"}
    if method.name not in ("lora", "qlora") or chosen or job.model.adapter is not None:
        return
    text = (
        f"method.rank {method.rank} suits fine-tuning; new knowledge wants more: method.rank 128, method.alpha 32 and "
        "method.rslora true are usual for pretrain, with embed_tokens and lm_head in method.modules_to_save for a new "
        "language or subject."
    )
    yield Finding("pretrain_rank_small", text, "note", "method.rank", method.rank, fix=dict(RICH))


def build(context: Context) -> Any:
    """A trl SFTTrainer over ready token ids whose labels are the ids themselves."""
    from core.training.language_modeling import language_modeling_trainer

    spec = context.job.stage
    assert isinstance(spec, Spec)
    return language_modeling_trainer(context, packing=spec.packing, loss="nll")
