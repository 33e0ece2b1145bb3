"""The trainer of sft and pretrain: trl's SFTTrainer over ready token ids and labels."""

from __future__ import annotations

from typing import Any

from trl import SFTConfig, SFTTrainer

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
    if context.job.train.fused:
        head_loss.install()
    arguments = SFTConfig(**settings_of(context, packing=packing, loss=_loss_type(context.model, loss)))
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


def _loss_type(model: Any, loss: str) -> str:
    from peft.tuners.tuners_utils import BaseTunerLayer

    if loss != "nll":
        return loss
    return "nll" if isinstance(model.get_output_embeddings(), BaseTunerLayer) else "chunked_nll"
