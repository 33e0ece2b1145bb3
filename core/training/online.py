"""The trainers that learn from their own answers, grpo and rloo: trl 1.12's, over our prompt ids and our rewards."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from typing import Any

from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from core.job.packages import VLLM_SERVER as SERVER
from core.rewards import NamedScorer, Setting, build_scorers, missing_columns, reward_functions, try_rewards
from core.stages import grpo, rloo
from core.training import shared_prompts
from core.training.arguments import common_arguments
from core.training.context import Context
from core.training.spread import loaded_whole
from core.training.trainer import OurTrainer
from data.errors import FactoryError, refuse

SHOWN = 4
"""Answers shown with their rewards at each log."""


class _OurPrompts(OurTrainer):
    """Generates from the ids that data.prepare wrote, and shows answers with their rewards."""

    show: Callable[[int, str, str, dict[str, float]], None]
    _ready: list[list[int]]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        self._ready = [row["input_ids"] for row in inputs]
        columns = [{name: value for name, value in row.items() if name != "input_ids"} for row in inputs]
        return super()._generate_and_score_completions(columns)  # type: ignore[misc]

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return self._ready, None, {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        trainer: Any = self
        if trainer.model.training:
            for place in range(min(SHOWN, len(trainer._logs["completion"]))):
                scores = {name: values[place] for name, values in trainer._logs["rewards"].items()}
                prompt, answer = trainer._logs["prompt"][place], trainer._logs["completion"][place]
                self.show(trainer.state.global_step, prompt, answer, scores)
        super().log(logs, start_time)  # type: ignore[misc]


class _GRPO(_OurPrompts, GRPOTrainer):
    pass


class _RLOO(_OurPrompts, RLOOTrainer):
    pass


def scorers_for(context: Context) -> list[NamedScorer]:
    """The job's rewards, ready to score, tried on a few rows. Raises FactoryError for what would fail later."""
    rewards = context.job.rewards
    if not rewards:
        raise refuse(
            "rewards_missing",
            f"stage {context.job.stage.name} learns from rewards and the job names none; add some, such as "
            "rewards: [accuracy].",
            field="rewards",
        )
    columns = _columns(context.train_rows)
    if missing := missing_columns(rewards, columns):
        raise FactoryError(missing)
    setting = Setting(home=context.home, emit=context.emit, device="cuda" if context.gpu else "cpu")
    scorers = build_scorers(rewards, setting)
    few = context.train_rows.select(range(min(4, len(context.train_rows))))
    try_rewards(scorers, [dict(row) for row in few])
    return scorers


def _columns(rows: Any) -> list[str]:
    import json

    free = json.loads(rows[0]["extra"]) if "extra" in rows.column_names and rows[0]["extra"] else {}
    return [name for name in rows.column_names if name not in ("input_ids", "extra")] + list(free)


def check_batch(context: Context) -> None:
    """Refuse a batch that cannot hold whole groups of answers, with the nearest one that can."""
    train, spec = context.job.train, context.job.stage
    assert isinstance(spec, grpo.Spec | rloo.Spec)
    assert train.batch_size is not None and train.gradient_accumulation is not None
    processes = context.job.hardware.processes
    batch, group = train.batch_size * train.gradient_accumulation * processes, spec.num_generations
    if batch % group:
        nearest = max(group, round(batch / group) * group)
        raise refuse(
            "batch_not_in_groups",
            f"train.batch_size {train.batch_size} x train.gradient_accumulation {train.gradient_accumulation} = "
            f"{batch} answers a step, which are no whole groups of stage.num_generations {group}; the nearest is "
            f"{nearest}.",
            field="train.gradient_accumulation",
            value=train.gradient_accumulation,
            batch=batch,
            group=group,
        )


def _whole_groups(batch: int, group: int) -> int:
    """Answers in a batch of held-out prompts: trl 1.12 takes whole groups only."""
    return max(1, math.ceil(batch / group)) * group


def _sampling(spec: grpo.Spec | rloo.Spec) -> dict[str, Any]:
    return {
        "max_completion_length": spec.max_completion_length,
        "num_generations": spec.num_generations,
        "num_generations_eval": spec.num_generations,
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "top_k": spec.top_k,
        "beta": spec.beta,
        "epsilon": spec.epsilon,
        "num_iterations": spec.num_iterations,
        "mask_truncated_completions": spec.mask_truncated,
        "remove_unused_columns": False,
        "use_vllm": spec.vllm != "off",
        "vllm_mode": "colocate" if spec.vllm == "off" else spec.vllm,
        "vllm_server_base_url": os.environ.get(SERVER) if spec.vllm == "server" else None,
    }


def _trainer(kind: type, arguments: Any, context: Context, scorers: list[NamedScorer]) -> Any:
    with loaded_whole():  # its reference, which the library loads itself
        trainer = kind(
            model=context.model,
            args=arguments,
            reward_funcs=reward_functions(scorers),
            train_dataset=context.train_rows,
            eval_dataset=context.eval_rows,
            processing_class=context.tokenizer,
            callbacks=context.callbacks,
        )
    trainer.show = context.show
    if context.shortcuts and not context.gpu:
        if (reason := shared_prompts.install(trainer.model)) is not None:
            sys.stdout.write(f"prompts are read once for each answer: {reason}\n")
    if context.fresh_adapter and "ref" in getattr(trainer.model, "peft_config", {}):
        trainer.model.delete_adapter(
            "ref"
        )  # the adapter switched off is the reference; the copy only costs memory
    return trainer


def grpo_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's GRPOConfig."""
    spec: Any = context.job.stage
    return {
        **common_arguments(context),
        **_sampling(spec),
        "per_device_eval_batch_size": _whole_groups(context.job.train.batch_size or 1, spec.num_generations),
        "loss_type": spec.loss,
        "importance_sampling_level": spec.importance_sampling,
        "epsilon_high": spec.highest,
        "scale_rewards": spec.scale_rewards,
        "reward_weights": [reward.weight for reward in context.job.rewards],
    }


def rloo_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's RLOOConfig."""
    spec: Any = context.job.stage
    return {
        **common_arguments(context),
        **_sampling(spec),
        "per_device_eval_batch_size": _whole_groups(context.job.train.batch_size or 1, spec.num_generations),
        "normalize_advantages": spec.algorithm == "reinforce++",
        "reward_weights": [reward.weight for reward in context.job.rewards],
    }


def grpo_trainer(context: Context) -> Any:
    """GRPO with the job's rewards and weights."""
    spec = context.job.stage
    assert isinstance(spec, grpo.Spec)
    check_batch(context)
    scorers = scorers_for(context)
    return _trainer(_GRPO, GRPOConfig(**grpo_settings(context)), context, scorers)


def rloo_trainer(context: Context) -> Any:
    """RLOO, or REINFORCE++-baseline, with the job's rewards and weights."""
    spec = context.job.stage
    assert isinstance(spec, rloo.Spec)
    check_batch(context)
    scorers = scorers_for(context)
    return _trainer(_RLOO, RLOOConfig(**rloo_settings(context)), context, scorers)
