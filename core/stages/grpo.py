"""GRPO: the model answers each prompt several times and learns from the answers that beat their group."""

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
    """Group relative policy optimisation (arXiv 2402.03300) on prompts, with rewards."""

    name: Literal["grpo"] = "grpo"
    """The stage."""
    max_prompt_length: int = Field(512, ge=4, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt; longer ones are dropped before the start and counted."""
    max_completion_length: int = Field(512, ge=1, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest answer."""
    num_generations: int = Field(8, ge=2, le=1024)
    """Answers to each prompt, compared with each other; at least 2."""
    loss: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo"] = "dapo"
    """How token losses are added up; names as in trl 1.12. dapo (arXiv 2503.14476) has no bias towards length."""
    importance_sampling: Literal["token", "sequence"] = "token"
    """Ratio of new to old policy for each token, or for the whole answer (GSPO, arXiv 2507.18071, with loss grpo)."""
    epsilon: float = Field(0.2, gt=0, le=100)
    """How far the ratio may fall, and rise where epsilon_high is empty, before it is clipped."""
    epsilon_high: float | None = Field(None, gt=0, le=100)
    """How far the ratio may rise; DAPO takes 0.28."""
    beta: float = Field(0.0, ge=0, le=10)
    """KL coefficient. 0 needs no reference model; 0.001 to 0.04 where the model drifts away."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the spread of the group, of the batch, or not (arXiv 2503.20783)."""
    mask_truncated: bool = False
    """Leave answers that hit max_completion_length out of the loss."""
    num_iterations: int = Field(1, ge=1, le=100)
    """Optimizer passes over each batch of answers."""
    temperature: float = Field(1.0, gt=0, le=10)
    """Sampling temperature; with less spread there is less to learn from."""
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
    """A trl GRPOTrainer over ready prompt ids, with the job's rewards."""
    from core.training.online import grpo_trainer

    return grpo_trainer(context)
