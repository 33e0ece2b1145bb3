"""What training changed, in numbers for the result card: the loss of base and tuned model on the same held-out rows."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from core.runs.events import Result
from core.runs.folder import Run
from core.runs.storage import read_json, write_json

FROM_REWARDS = ("ppo", "grpo", "rloo")
"""Stages that learn from rewards: their held-out loss says nothing, their reward does."""
BASELINE = "baseline.json"
"""File in the run folder that keeps the loss before training, for attempts that begin later."""


def can_compare(stage: str, eval_rows: Any) -> bool:
    """Whether there are held-out rows on which a loss means something."""
    return eval_rows is not None and stage not in FROM_REWARDS


def held_out_loss(trainer: Any) -> float:
    """The loss of the model as it is on the trainer's held-out rows. Tells nobody, and leaves chance as it was."""
    with _same_chance():
        output = trainer.evaluation_loop(
            trainer.get_eval_dataloader(),
            description="baseline",
            prediction_loss_only=True,
            metric_key_prefix="eval",
        )
    # trl 1.12 would add what it counted here to the next record: orpo and cpo keep it under another name.
    for kind in (
        *getattr(trainer, "_metrics", {}).values(),
        getattr(trainer, "_stored_metrics", {}).get("eval", {}),
    ):
        kind.clear()
    trainer.model.train()
    return float(output.metrics["eval_loss"])


def keep_baseline(run: Run, loss: float) -> None:
    """Remember the loss before training. Raises OSError."""
    write_json(run.path / BASELINE, {"eval_loss": loss})


def kept_baseline(run: Run) -> float | None:
    """The loss before training that an attempt has kept; None when there is none."""
    try:
        return float(read_json(run.path / BASELINE)["eval_loss"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def result_of(
    stage: str, history: list[dict[str, Any]], rows: int | None, base: float | None, best: float | None
) -> Result:
    """What the card says in numbers.

    `history` is the trainer's log, `rows` how many are held out (None without any), `base` the untrained model's loss
    on them, `best` that of the weights that were kept, where these are not the last.
    """
    evaluated = [record["eval_loss"] for record in history if "eval_loss" in record]
    if rows and evaluated and stage not in FROM_REWARDS:
        return Result(
            name="eval_loss",
            before=base,
            after=best if best is not None else evaluated[-1],
            rows=rows,
            held_out=True,
        )
    name = "reward" if stage in FROM_REWARDS else "loss"
    keys = ("reward", "objective/scores") if name == "reward" else ("loss",)
    values = [float(record[key]) for record in history for key in keys if key in record]
    ends = (values[0], values[-1]) if values else (None, None)
    return Result(name=name, before=ends[0], after=ends[1], rows=None, held_out=False)


@contextlib.contextmanager
def _same_chance() -> Iterator[None]:
    """Leave every source of chance as it was, or the numbers of training would depend on having looked."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
