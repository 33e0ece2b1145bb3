"""What all our trainers do differently from trl 1.12's: no cards in checkpoints, and a resume that keeps precisions."""

from __future__ import annotations

from typing import Any


class OurTrainer:
    """Stands before a trl trainer in the list of bases."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: cards are an export of their own, and a checkpoint stays what resume needs."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load weights without changing their precision.

        peft 0.21 loads an adapter in fp32, while trl trains one beside a quantised base in bf16: a resumed run would
        go on with other numbers. Can go when peft's load_adapter keeps the precision of a loaded adapter.
        """
        trainer: Any = self
        kept = {name: parameter.dtype for name, parameter in trainer.model.named_parameters()}
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        for name, parameter in trainer.model.named_parameters():
            if parameter.dtype != kept.get(name, parameter.dtype):
                parameter.data = parameter.data.to(kept[name])
