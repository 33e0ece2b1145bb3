"""What all our trainers do differently from trl 1.12's: no cards in checkpoints, and a resume that keeps precisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.training.saving import has_other_names, read_weights

COUNTERS = {"num_tokens": "_total_train_tokens", "trained_tokens": "trained_tokens"}
"""Counts of a whole run, by their name in the logs, and the attribute that holds each; trl 1.12 begins them anew."""


def counted(history: Sequence[dict[str, Any]], name: str) -> int:
    """The last count called `name` in a trainer's log; 0 where it was never written."""
    return int(next((one[name] for one in reversed(history) if name in one), 0))


class OurTrainer:
    """Stands before a trl trainer in the list of bases."""

    def _count_on(self, checkpoint: str) -> None:
        """Go on counting tokens where the checkpoint's log ends: they are "so far" of the run, not of an attempt."""
        written = json.loads((Path(checkpoint) / "trainer_state.json").read_text("utf-8"))["log_history"]
        for name, attribute in COUNTERS.items():
            if hasattr(self, attribute):
                setattr(self, attribute, counted(written, name))

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: cards are an export of their own, and a checkpoint stays what resume needs."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load all weights, without changing their precision.

        transformers 5.17's trainer looks for a model's own names in the files and passes over what has others there,
        with a warning: a mixture of experts would go on with the base's experts.
        peft 0.21 loads an adapter in fp32, while trl trains one beside a quantised base in bf16: a resumed run would
        go on with other numbers. Can go when peft's load_adapter keeps the precision of a loaded adapter.
        """
        trainer: Any = self
        self._count_on(resume_from_checkpoint)
        kept = {name: parameter.dtype for name, parameter in trainer.model.named_parameters()}
        if has_other_names(trainer.model, Path(resume_from_checkpoint)):
            trainer.model.load_state_dict(read_weights(trainer.model, Path(resume_from_checkpoint)))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        for name, parameter in trainer.model.named_parameters():
            if parameter.dtype != kept.get(name, parameter.dtype):
                parameter.data = parameter.data.to(kept[name])
