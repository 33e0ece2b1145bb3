"""How long a run is and when it logs, evaluates and saves: pure arithmetic, the same for plan and trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from core.job.spec import TrainSpec


@dataclass(frozen=True)
class Schedule:
    """Steps of a run. All numbers are optimizer steps."""

    total_steps: int
    steps_per_epoch: int
    warmup_steps: int
    logging_steps: int
    eval_steps: int
    save_steps: int


def smaller_batches(batch: int, accumulation: int, *, least: int = 1) -> Iterator[tuple[int, int]]:
    """Batch sizes of about a half, a quarter, ... with the accumulations that make the very same step of them."""
    rows = batch * accumulation
    while fits := [size for size in range(least, batch // 2 + 1) if rows % size == 0]:
        batch = fits[-1]
        yield batch, rows // batch


def schedule(train: TrainSpec, rows: int, *, processes: int = 1) -> Schedule:
    """Steps for `rows` training sequences, by the rule of transformers' Trainer 5.17 (set_initial_training_values).

    The last, shorter accumulation of an epoch counts as a step. `train` is resolved: no preset is left empty.
    """
    assert (
        train.batch_size is not None and train.gradient_accumulation is not None and train.warmup is not None
    )
    batches = math.ceil(rows / (train.batch_size * processes))
    per_epoch = max(math.ceil(batches / train.gradient_accumulation), 1)
    total = train.max_steps or math.ceil((train.epochs or 0) * per_epoch)
    return Schedule(
        total_steps=total,
        steps_per_epoch=per_epoch,
        # A run of one step has no room to warm up: its only step would have rate 0.
        warmup_steps=min(math.ceil(train.warmup * total), total - 1)
        if train.warmup < 1
        else int(train.warmup),
        logging_steps=train.logging_steps or max(1, total // 200),
        eval_steps=train.eval_steps or max(1, math.ceil(total / 10)),
        save_steps=train.save_steps or max(1, math.ceil(total / 10)),
    )
