"""Packages that only some jobs need: which, and the one command that brings them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from core.job.optimizers import package_for
from core.job.spec import JobSpec
from data.errors import Finding

TRACKERS = ("tensorboard", "wandb", "swanlab", "trackio", "mlflow")
"""Package and module of a tracker have its name."""
TRACKER_VARIABLES = {
    "wandb": ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL", "WANDB_MODE", "WANDB_DIR"),
    "swanlab": ("SWANLAB_API_KEY", "SWANLAB_PROJECT", "SWANLAB_MODE", "SWANLAB_LOG_DIR"),
    "trackio": ("TRACKIO_PROJECT", "TRACKIO_SPACE_ID", "TRACKIO_DIR"),
    "mlflow": (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_EXPERIMENT_NAME",
        "MLFLOW_TRACKING_USERNAME",
        "MLFLOW_TRACKING_PASSWORD",
    ),
    "tensorboard": (),
}
"""Environment variables each tracker reads; they reach the training process by name, their values stay out of files."""


def missing_packages(job: JobSpec) -> Iterator[Finding]:
    """A finding for each package this job needs and this Python does not have. Imports none of them."""
    if (needs := package_for(job.train.optimizer)) is not None and not _here(needs[1]):
        yield _finding("train.optimizer", job.train.optimizer, needs[0])
    if job.method.name == "qlora" and not _here("bitsandbytes"):
        yield _finding("method", "qlora", "bitsandbytes")
    for tracker in job.report_to:
        if not _here(tracker):
            yield _finding("report_to", tracker, tracker)


def _here(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _finding(field: str, value: str, package: str) -> Finding:
    return Finding(
        "package_missing",
        f"{field} {value!r} needs the package {package}, which this Python does not have; run: pip install {package}",
        "error",
        field,
        value,
        {"package": package},
    )
