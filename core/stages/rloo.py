"""RLOO and REINFORCE++: policy gradient with the other answers to the same prompt as the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from core.job.base import unit
from core.stages.base import StageSpec

if TYPE_CHECKING:
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("prompt",)
"""Row shapes (data.rows) the stage can train on, best first."""
REWARDED = True
"""Whether the stage learns from the job's rewards."""


class Spec(StageSpec):
    """REINFORCE leave-one-out (arXiv 2402.14740) on prompts, with rewards."""

    name: Literal["rloo"] = "rloo"
    """The stage."""
    algorithm: Literal["rloo", "reinforce++"] = "rloo"
    """rloo, or reinforce++: RLOO with normalised advantages, that is REINFORCE++-baseline (arXiv 2501.03262)."""
    max_prompt_length: int = Field(512, ge=4, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt; longer ones are dropped before the start and counted."""
    max_completion_length: int = Field(512, ge=1, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest answer."""
    num_generations: int = Field(2, ge=2, le=1024)
    """Answers to each prompt; each one's baseline is the mean of the others, so at least 2."""
    beta: float = Field(0.05, ge=0, le=10)
    """KL coefficient, taken off the reward; 0 needs no reference model."""
    epsilon: float = Field(0.2, gt=0, le=100)
    """How far the ratio of new to old policy may move before it is clipped."""
    mask_truncated: bool = False
    """Leave answers that hit max_completion_length out of the loss."""
    num_iterations: int = Field(1, ge=1, le=100)
    """Optimizer passes over each batch of answers."""
    temperature: float = Field(1.0, gt=0, le=10)
    """Sampling temperature."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the most likely tokens that together have this probability."""
    top_k: int = Field(0, ge=0, le=1_000_000)
    """Sample from so many of the most likely tokens; 0: all."""

    vllm: Literal["off", "colocate", "server"] = "off"
    """Who samples the answers: the trainer itself, vLLM on the same GPU, or a vLLM server the operator runs at the
    address in FACTORY_VLLM_SERVER. Not run by us yet (planned): it needs a GPU."""

    @field_validator("num_generations", mode="before")
    @classmethod
    def _something_to_compare(cls, value: object) -> object:
        if value == 1:
            raise ValueError(
                "compares the answers to each prompt with each other, so it needs at least 2; got 1"
            )
        return value

    @property
    def repeats(self) -> int:
        """Answers made of each prompt."""
        return self.num_generations


def build(context: Context) -> Any:
    """A trl RLOOTrainer over ready prompt ids, with the job's rewards."""
    from core.training.online import rloo_trainer

    return rloo_trainer(context)
