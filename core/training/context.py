"""What a stage gets to build its trainer: plain data, filled by the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.engines import engine_module
from core.job.schedule import Schedule
from core.job.spec import JobSpec
from data.errors import Finding


@dataclass(frozen=True)
class Context:
    """A job with its model, tokenizer and rows loaded. `train_rows` and `eval_rows` are datasets.Dataset."""

    job: JobSpec
    output_dir: Path
    model: Any
    tokenizer: Any
    train_rows: Any
    eval_rows: Any | None
    schedule: Schedule
    callbacks: list[Any]
    gpu: bool
    home: Path
    emit: Callable[[Finding], None]
    """Takes what is worth telling while the trainer is built and runs."""
    show: Callable[[int, str, str, dict[str, float]], None]
    """Takes an answer given during training: step, prompt, answer, score per reward."""
    fresh_adapter: bool = False
    """Whether the model wears an adapter that has learnt nothing yet: without it, it is the model of before."""
    frozen_copy: Callable[[], Any] = lambda: None
    """Loads the model as it was before training, for stages that compare with it and have no adapter to switch off."""

    @property
    def shortcuts(self) -> bool:
        """Whether our shorter ways through a CPU (train.fused) are wanted, and the engine has none of its own."""
        return self.job.train.fused and bool(engine_module(self.job.engine.name).OUR_SHORTCUTS)
