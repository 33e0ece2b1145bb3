"""The trainers of reward, dpo, kto and orpo: trl 1.12's own, given our token ids."""

from __future__ import annotations

import warnings
from typing import Any

from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer
from trl.trainer.reward_trainer import DataCollatorForPreference

from core.methods import ADAPTERS
from core.stages import dpo, kto, orpo, reward
from core.training.arguments import common_arguments
from core.training.context import Context
from core.training.feedback import split_answers
from core.training.pairs import OddsCollator, ReadyRows, whole_answers
from core.training.trainer import OurTrainer


class _Ready(OurTrainer):
    """Our rows are prepared."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset


class _Reward(_Ready, RewardTrainer):
    pass


class _DPO(_Ready, DPOTrainer):
    pass


class _KTO(_Ready, KTOTrainer):
    pass


class _WholeAnswers(DataCollatorForPreference):
    """The library's batches, each answer with its prompt before it."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        return dict(super().torch_call(whole_answers(examples)))


def _parts(context: Context) -> dict[str, Any]:
    return {
        "model": context.model,
        "processing_class": context.tokenizer,
        "train_dataset": context.train_rows,
        "eval_dataset": context.eval_rows,
        "callbacks": context.callbacks,
    }


def reward_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's RewardConfig."""
    spec: Any = context.job.stage
    return {
        **common_arguments(context),
        "max_length": None,
        "center_rewards_coefficient": spec.center,
        "remove_unused_columns": False,
    }


def dpo_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's DPOConfig."""
    spec: Any = context.job.stage
    return {
        **common_arguments(context),
        "max_length": None,
        "loss_type": list(spec.loss),
        "loss_weights": spec.loss_weights,
        "beta": spec.beta,
        "label_smoothing": spec.label_smoothing,
        "precompute_ref_log_probs": spec.reference == "precomputed",
    }


def kto_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's KTOConfig."""
    spec: Any = context.job.stage
    return {
        **common_arguments(context),
        "max_length": None,
        "loss_type": spec.loss,
        "beta": spec.beta,
        "desirable_weight": spec.desirable_weight,
        "undesirable_weight": spec.undesirable_weight,
    }


def orpo_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's ORPOConfig."""
    spec: Any = context.job.stage
    return {**common_arguments(context), "max_length": spec.max_length, "beta": spec.beta}


def cpo_settings(context: Context) -> dict[str, Any]:
    """Keyword arguments of trl's CPOConfig, for cpo and simpo."""
    spec: Any = context.job.stage
    simpo = spec.loss[0] == "simpo"
    return {
        **common_arguments(context),
        "max_length": spec.max_length,
        "beta": spec.beta,
        "label_smoothing": spec.label_smoothing,
        "loss_type": "simpo" if simpo else "sigmoid",
        "simpo_gamma": spec.simpo_gamma,
        "cpo_alpha": 0.0 if simpo else spec.cpo_alpha,
    }


def reward_trainer(context: Context) -> Any:
    """Bradley-Terry on pairs; the model is a classifier with one label."""
    spec = context.job.stage
    assert isinstance(spec, reward.Spec)
    arguments = RewardConfig(**reward_settings(context))
    parts = _parts(context)
    if not spec.margin:
        for name in ("train_dataset", "eval_dataset"):
            if parts[name] is not None and "margin" in parts[name].column_names:
                parts[name] = parts[name].remove_columns("margin")
    collator = _WholeAnswers(pad_token_id=context.tokenizer.pad_token_id)
    return _Reward(**parts, args=arguments, data_collator=collator)


def dpo_trainer(context: Context) -> Any:
    """DPO and its relatives against a reference.

    With a fresh adapter the reference is the model without it; with an adapter that was trained before, a frozen
    copy of that one (trl makes it for every adapter; for a fresh one it would only cost memory and is taken out).
    """
    spec = context.job.stage
    assert isinstance(spec, dpo.Spec)
    arguments = DPOConfig(**dpo_settings(context))
    asked_once = spec.reference == "precomputed"
    trainer = _DPO(**_parts(context), args=arguments, ref_model=None if asked_once else _reference(context))
    _drop_needless_copy(trainer, context)
    return trainer


def kto_trainer(context: Context) -> Any:
    """KTO against a reference, as in dpo_trainer."""
    spec = context.job.stage
    assert isinstance(spec, kto.Spec)
    train = context.job.train
    assert train.batch_size is not None
    arguments = KTOConfig(**kto_settings(context))
    parts = _parts(context)
    for name in ("train_dataset", "eval_dataset"):
        if parts[name] is not None:
            parts[name] = split_answers(parts[name], batch_size=train.batch_size, seed=train.seed)
    trainer = _KTO(**parts, args=arguments, ref_model=_reference(context))
    _drop_needless_copy(trainer, context)
    return trainer


def orpo_trainer(context: Context) -> Any:
    """ORPO, experimental in trl 1.12."""
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    spec = context.job.stage
    assert isinstance(spec, orpo.Spec)
    arguments = ORPOConfig(**orpo_settings(context))
    return _odds_trainer(ORPOTrainer, arguments, context)


def cpo_trainer(context: Context) -> Any:
    """CPO, or SimPO (CPO's trainer with the simpo loss and no likelihood term), experimental in trl 1.12."""
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    spec = context.job.stage
    assert isinstance(spec, dpo.Spec)
    arguments = CPOConfig(**cpo_settings(context))
    return _odds_trainer(CPOTrainer, arguments, context)


def _odds_trainer(kind: type, arguments: Any, context: Context) -> Any:
    arguments.remove_unused_columns = False
    ready = type(kind.__name__, (_Ready, kind), {})
    parts = _parts(context)
    parts["train_dataset"] = ReadyRows.of(parts["train_dataset"])
    parts["eval_dataset"] = ReadyRows.of(parts["eval_dataset"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their constructors warn about a collator they are given on purpose
        trainer = ready(**parts, args=arguments, data_collator=OddsCollator(context.tokenizer.pad_token_id))
    trainer.use_dpo_data_collator = (
        True  # ours makes the same batches; losses are only computed when it says so
    )
    return trainer


def _reference(context: Context) -> Any:
    """A frozen copy with full training; None with an adapter, where the trainer switches it off or copies it."""
    return None if context.job.method.name in ADAPTERS else context.frozen_copy()


def _drop_needless_copy(trainer: Any, context: Context) -> None:
    if context.fresh_adapter and "ref" in getattr(trainer.model, "peft_config", {}):
        trainer.model.delete_adapter("ref")
