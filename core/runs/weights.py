"""Which weights of a run are whole: its finished model, or one of its checkpoints. Stdlib only."""

from __future__ import annotations

from pathlib import Path

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.storage import refusal
from data.errors import refuse


def whole_steps(run: Run) -> list[int]:
    """The steps of the run's whole checkpoints, lowest first."""
    return [step for folder in checkpoints.complete(run) if (step := checkpoints.step_of(folder)) is not None]


def pin(run: Run, step: int, *, pinned: bool = True) -> Path:
    """Keep the checkpoint of a step for good, whatever train.keep_checkpoints says, or no longer. Returns its folder.

    Raises FactoryError when there is no such checkpoint, or the disk does not take it.
    """
    folder = weights_of(run, step)
    try:
        if pinned:
            (folder / checkpoints.PIN).touch()
        else:
            (folder / checkpoints.PIN).unlink(missing_ok=True)
    except OSError as error:
        raise refusal(error, folder) from error
    return folder


def weights_of(run: Run, checkpoint: int | None) -> Path:
    """The folder of the finished model, or of the whole checkpoint of a step. Raises FactoryError without it."""
    whole = whole_steps(run)
    if checkpoint is not None:
        folder = run.checkpoints / f"checkpoint-{checkpoint}"
        if not checkpoints.is_complete(folder):
            known = f"it has {', '.join(map(str, whole))}" if whole else "it has none"
            text = f"Run {run.id} has no whole checkpoint of step {checkpoint}: {known}."
            raise refuse("checkpoint_not_found", text, field="checkpoint", value=checkpoint, steps=whole)
        return folder
    if not checkpoints.is_complete(run.model):
        last = (
            f"take its newest checkpoint with --checkpoint {whole[-1]}"
            if whole
            else "it made no checkpoint either"
        )
        raise refuse(
            "model_not_there", f"Run {run.id} has no finished model: {last}.", value=run.id, steps=whole
        )
    return run.model
