"""PPO: the model answers prompts and learns from answers that turn out better than its value model expected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.job.base import unit
from core.stages.base import StageSpec
from data.errors import FactoryError, Finding

if TYPE_CHECKING:
    from core.job.spec import JobSpec
    from core.training.context import Context

TASK = "CAUSAL_LM"
"""What the model is for, in the words of peft."""
NEEDS = ("prompt",)
"""Row shapes (data.rows) the stage can train on, best first."""
REWARDED = True
"""Whether the stage learns from the job's rewards."""
OTHER_LOOPS = ("galore", "lomo", "adalomo", "apollo", "schedule_free")
"""Beginnings of the names of optimizers that work only inside transformers' own training loop."""
WHITENED_ROWS = 8
"""Fewest answers of a mini-batch over which rewards may be whitened (trl 1.12 asserts the same)."""


class Spec(StageSpec):
    """Proximal policy optimisation (arXiv 1707.06347) on prompts, with rewards and a value model."""

    name: Literal["ppo"] = "ppo"
    """The stage."""
    max_prompt_length: int = Field(512, ge=4, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest prompt; longer ones are dropped before the start and counted."""
    max_completion_length: int = Field(256, ge=1, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longest answer (response_length in trl)."""
    value: str | None = Field(None, min_length=1, max_length=4096)
    """The value model to start from: a run of the reward stage or a folder of a classifier with one label. Empty: the
    reward model, or without one the model itself with a new head."""
    value_learning_rate: float | None = Field(None, ge=0, le=1)
    """Peak learning rate of the value model, which is always trained in full. Empty: train.learning_rate, as in trl."""
    kl_coef: float = Field(0.05, ge=0, le=10)
    """What a nat of distance from the reference costs, taken off the reward (trl 1.12: 0.05)."""
    kl_estimator: Literal["k1", "k3"] = "k1"
    """How the distance is estimated from one answer: k1 is the log ratio; k3 varies less and is never negative."""
    num_ppo_epochs: int = Field(4, ge=1, le=100)
    """Passes over each batch of answers (trl 1.12: 4)."""
    num_mini_batches: int = Field(1, ge=1, le=65_536)
    """Optimizer steps in each pass: the batch of answers is split into so many equal parts."""
    cliprange: float = Field(0.2, gt=0, le=10)
    """How far the ratio of new to old policy may move before it is clipped (arXiv 1707.06347: 0.2)."""
    vf_coef: float = Field(0.1, ge=0, le=100)
    """Weight of the value loss (trl 1.12: 0.1)."""
    cliprange_value: float = Field(0.2, gt=0, le=1000)
    """How far a value may move from the old one before its loss is clipped (trl 1.12: 0.2)."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount of later rewards; 1 for answers, whose reward comes at their end."""
    lam: float = Field(0.95, ge=0, le=1)
    """Lambda of generalised advantage estimation (arXiv 1506.02438): lower trusts the value model more."""
    temperature: float = Field(0.7, gt=0, le=10)
    """Sampling temperature (trl 1.12: 0.7)."""
    missing_eos_penalty: float | None = Field(None, ge=0, le=1000)
    """Taken off the reward of an answer that was cut at max_completion_length. Empty: nothing."""
    whiten_rewards: bool = False
    """Scale the rewards of a batch's tokens to variance 1 before advantages are computed."""
    local_rollout_forward_batch_size: int = Field(64, ge=1, le=65_536, json_schema_extra=unit("answers"))
    """Answers generated and scored at a time; fewer need less memory (trl 1.12: 64)."""


def look(job: JobSpec, home: Path) -> Iterator[Finding]:
    """What would go wrong with a resolved job, seen without torch: batches, value model, what the loop cannot do."""
    assert isinstance(job.stage, Spec)
    yield from _batches(job.stage, job.train.batch_size or 1, job.train.gradient_accumulation or 1)
    yield from _value(job.stage, home)
    if job.hardware.precision == "fp16":
        text = "stage ppo computes in bf16 or fp32, not in hardware.precision fp16; use auto."
        yield _not_here("ppo_without_fp16", text, "hardware.precision", "fp16", instead="auto")
    if (alpha := job.train.neftune_alpha) is not None:
        text = (
            f"train.neftune_alpha {alpha:g} does not go with stage ppo: noise in the embeddings would be noise in the "
            "ratio of new to old policy; leave it empty."
        )
        yield _not_here("ppo_without_noise", text, "train.neftune_alpha", alpha, instead=None)
    if (optimizer := job.train.optimizer).startswith(OTHER_LOOPS):
        text = (
            f"train.optimizer {optimizer} has to be driven by transformers' own loop, which stage ppo does not use; "
            "take adamw_torch_fused."
        )
        yield _not_here(
            "optimizer_not_for_ppo", text, "train.optimizer", optimizer, instead="adamw_torch_fused"
        )


def _not_here(code: str, text: str, field: str, value: object, *, instead: object) -> Finding:
    return Finding(code, text, "error", field, value, fix={field: instead})


def _batches(spec: Spec, rows: int, accumulation: int) -> Iterator[Finding]:
    """Relations that must hold between batch sizes, each told with all its numbers."""
    batch, parts = rows * accumulation, spec.num_mini_batches
    told = f"train.batch_size {rows} x train.gradient_accumulation {accumulation} = {batch} answers an update"
    field, params = "stage.num_mini_batches", {"batch": batch, "mini_batches": parts, "batch_size": rows}
    if batch % parts:
        able = _listed([n for n in range(1, batch + 1) if batch % n == 0])
        text = f"{told} cannot be split into stage.num_mini_batches {parts} equal parts; take {able}."
        yield Finding("batch_not_divisible", text, "error", field, parts, params)
        return
    part = batch // parts
    if part > rows and part % rows:
        text = (
            f"{told} in stage.num_mini_batches {parts} make {part} each, which are no whole batches of {rows}; "
            f"take train.batch_size {_largest_divisor(part, rows)}, or other stage.num_mini_batches."
        )
        yield Finding("batch_not_divisible", text, "error", field, parts, params)
    if spec.whiten_rewards and part < WHITENED_ROWS:
        text = (
            f"{told} in stage.num_mini_batches {parts} make {part} each, too few for stage.whiten_rewards, which "
            f"needs {WHITENED_ROWS}; take larger batches, or switch it off."
        )
        yield Finding("batch_too_small_to_whiten", text, "error", "stage.whiten_rewards", True, params)


def _listed(numbers: list[int]) -> str:
    shown = numbers if len(numbers) <= 8 else [*numbers[:7], numbers[-1]]
    return " or ".join([", ".join(map(str, shown[:-1])), str(shown[-1])]) if len(shown) > 1 else str(shown[0])


def _largest_divisor(number: int, limit: int) -> int:
    return max(n for n in range(1, limit + 1) if number % n == 0)


def _value(spec: Spec, home: Path) -> Iterator[Finding]:
    """A value model that is not there, or is no classifier with one label."""
    from core.rewards.model import check_reward_model, find_model

    if spec.value is None:
        return
    try:
        check_reward_model(find_model(spec.value, home), spec.value)
    except FactoryError as error:
        reason = error.findings[0].message.rstrip(".")
        text = (
            f"stage.value {spec.value!r} is no value model: {reason}; or leave stage.value empty, and it is made from "
            "the reward model."
        )
        yield Finding("value_model_wrong", text, "error", "stage.value", spec.value)


def before_loading(job: JobSpec, home: Path, tokenizer: Any, rows: int) -> None:
    """Refuse what cannot work before any weights are loaded. Raises FactoryError with everything that is wrong."""
    from core.training.ppo.models import tokenizer_findings

    found = [*look(job, home), *_too_few(job, rows)] or tokenizer_findings(job, home, tokenizer)
    if found:
        raise FactoryError(found)


def _too_few(job: JobSpec, rows: int) -> Iterator[Finding]:
    batch = (job.train.batch_size or 1) * (job.train.gradient_accumulation or 1)
    if rows < batch:
        text = (
            f"the data has {rows} prompts, fewer than the {batch} of one update (train.batch_size "
            f"{job.train.batch_size} x train.gradient_accumulation {job.train.gradient_accumulation}); "
            "give more prompts or take smaller batches."
        )
        yield Finding("fewer_rows_than_a_batch", text, "error", "train.batch_size", job.train.batch_size)


def build(context: Context) -> Any:
    """Our own PPO loop, with the numbers of trl 1.12's experimental PPOTrainer."""
    from core.training.ppo.build import ppo_trainer

    return ppo_trainer(context)
