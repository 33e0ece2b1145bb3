"""Before a trainer starts its trackers: their files go to the run or the home, never into the checkout."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

from core.runs.folder import Run


def prepare(names: Sequence[str], run: Run) -> None:
    """Say where each tracker writes, unless the operator's environment says so already."""
    folders = {
        "TENSORBOARD_LOGGING_DIR": run.path / "tensorboard",
        "WANDB_DIR": run.path,
        "SWANLAB_LOG_DIR": run.path / "swanlab",
    }
    for variable, folder in folders.items():
        os.environ.setdefault(variable, str(folder))
    # mlflow's own default is a database in the working directory, which is the checkout.
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{run.home / 'mlflow.db'}")
    if "swanlab" in names:
        _begin_swanlab(run)


def _begin_swanlab(run: Run) -> None:
    """Begin swanlab's run here. transformers 5.17 asks for the current one first, which swanlab 0.10 answers with an
    error where there is none yet. Can go when the two agree again."""
    swanlab = importlib.import_module("swanlab")
    swanlab.init(project=os.environ.get("SWANLAB_PROJECT"), experiment_name=run.id)
