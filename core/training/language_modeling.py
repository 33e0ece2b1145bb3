"""The trainer of sft and pretrain: trl's SFTTrainer over ready token ids and labels."""

from __future__ import annotations

from typing import Any

from trl import SFTConfig, SFTTrainer

from core.engines import engine_module
from core.training import head_loss
from core.training.arguments import common_arguments
from core.training.context import Context
from core.training.trainer import OurTrainer


class LanguageModelingTrainer(OurTrainer, SFTTrainer):
    """SFTTrainer that counts the tokens that taught."""

    trained_tokens: int = 0

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        count = super()._get_num_items_in_batch(batch_samples, device)
        self.trained_tokens += int(count or 0)
        return count

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self.model.training:
            logs["trained_tokens"] = self.trained_tokens
        super().log(logs, start_time)


def language_modeling_trainer(context: Context, *, packing: bool, loss: str) -> LanguageModelingTrainer:
    """A trainer over rows with `input_ids` and `labels` (and `seq_lengths` when packed).

    loss "nll" uses trl's chunked form: the same value, computed on trained tokens only. It reads the output head's
    weight directly, so an adapter on the head needs the plain form.
    """
    if context.shortcuts:
        head_loss.install()
    arguments = SFTConfig(**settings_of(context, packing=packing, loss=_loss_type(context, loss)))
    # Unsloth 2026.10.9 switches it off on a CPU, fearing for attention; transformers 5.17 keeps packed rows apart by
    # their positions, as a test of ours shows. Without it they would see each other.
    arguments.padding_free = packing
    return LanguageModelingTrainer(
        model=context.model,
        args=arguments,
        train_dataset=context.train_rows,
        eval_dataset=context.eval_rows,
        processing_class=context.tokenizer,
        callbacks=context.callbacks,
    )


def settings_of(context: Context, *, packing: bool, loss: str) -> dict[str, Any]:
    """Keyword arguments of trl's SFTConfig for rows that are ready; `loss` in trl's words."""
    return {
        **common_arguments(context),
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,  # rows are cut and packed already, by data.prepare
        "padding_free": packing,  # position ids restart with every row of a packed sequence
        "loss_type": loss,
    }


def _loss_type(context: Context, loss: str) -> str:
    from peft.tuners.tuners_utils import BaseTunerLayer

    if loss != "nll" or not engine_module(context.job.engine.name).OUR_SHORTCUTS:
        return loss  # an engine with losses of its own puts them in the place of the plain one
    return "nll" if isinstance(context.model.get_output_embeddings(), BaseTunerLayer) else "chunked_nll"
