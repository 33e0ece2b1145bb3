"""What stages that answer their own prompts have in common: how answers are drawn."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from core.job.base import unit
from core.stages.base import StageSpec


class SamplingSpec(StageSpec):
    """Lengths and sampling of the answers a stage learns from; several answers to each prompt."""

    max_prompt_length: int = Field(512, ge=4, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt; longer ones are dropped before the start and counted."""
    max_completion_length: int = Field(512, ge=1, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest answer."""
    num_generations: int = Field(8, ge=2, le=1024)
    """Answers to each prompt, compared with each other; at least 2."""
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
