"""Direct preference optimisation and its relatives: learn from pairs without a reward model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("preference",)
"""Row shapes (data.rows) the stage can train on, best first."""

Loss = Literal[
    "sigmoid",
    "sigmoid_norm",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "simpo",
    "cpo",
]
ALONE = ("simpo", "cpo")
"""Losses without a reference model, by a trainer of their own: they cannot be mixed with others."""


class Spec(StageSpec):
    """Preference optimisation on pairs (DPO, arXiv 2305.18290, and the losses that came after it)."""

    name: Literal["dpo"] = "dpo"
    """The stage."""
    max_length: int = Field(2048, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt with answer; what is longer is cut at the end and counted."""
    loss: list[Loss] = Field(["sigmoid"], min_length=1, max_length=4)
    """One loss, or several that are added: [sigmoid, sft] is what others call rpo_alpha. Names as in trl 1.12."""
    loss_weights: list[float] | None = None
    """Weight of each loss, in the order of `loss`. Empty: all 1."""
    beta: float = Field(0.1, gt=0, le=100)
    """How firmly the model stays near the reference; larger is firmer. 0.05 to 0.2 is usual."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Share of pairs taken to be labelled the wrong way round (robust and exo_pair need it above 0)."""
    simpo_gamma: float = Field(0.5, ge=0, le=10)
    """Target margin of simpo (arXiv 2405.14734)."""
    cpo_alpha: float = Field(1.0, ge=0, le=100)
    """Weight of the likelihood term of cpo (arXiv 2401.08417)."""
    reference: Literal["auto", "precomputed"] = "auto"
    """auto: the adapter switched off, or a frozen copy with full training. precomputed: asked once before training,
    which saves its memory."""

    @model_validator(mode="after")
    def _losses_go_together(self) -> Spec:
        alone = [name for name in self.loss if name in ALONE]
        if alone and len(self.loss) > 1:
            raise ValueError(
                f"{alone[0]} has a trainer of its own and cannot be mixed; give it as the only loss"
            )
        if self.loss_weights is not None and len(self.loss_weights) != len(self.loss):
            raise ValueError(
                f"{len(self.loss_weights)} loss_weights for {len(self.loss)} losses; give one each"
            )
        if "exo_pair" in self.loss and self.label_smoothing == 0:
            raise ValueError("exo_pair needs label_smoothing above 0; its paper takes 0.001")
        return self


def build(context: Context) -> Any:
    """A trl DPOTrainer (CPOTrainer for simpo and cpo) over ready token ids."""
    from core.training.preference import cpo_trainer, dpo_trainer

    spec = context.job.stage
    assert isinstance(spec, Spec)
    return cpo_trainer(context) if spec.loss[0] in ALONE else dpo_trainer(context)
