"""Packages that only some jobs need: which, and the one command that brings them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from core.job.optimizers import package_for
from core.job.spec import JobSpec
from data.errors import Finding

TRACKERS = ("tensorboard", "wandb", "swanlab", "trackio", "mlflow")
"""Package and module of a tracker have its name."""
VLLM_SERVER = "FACTORY_VLLM_SERVER"
"""Environment variable with the address of the operator's vLLM server: no job names an address."""
TRACKER_VARIABLES = {
    "wandb": ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL", "WANDB_MODE", "WANDB_DIR"),
    "swanlab": ("SWANLAB_API_KEY", "SWANLAB_PROJECT", "SWANLAB_MODE", "SWANLAB_LOG_DIR"),
    "trackio": ("TRACKIO_PROJECT", "TRACKIO_SPACE_ID", "TRACKIO_DIR"),
    "mlflow": (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_ALLOW_FILE_STORE",
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


def vllm_problems(job: JobSpec, *, gpu: bool) -> Iterator[Finding]:
    """Why vLLM cannot sample the answers of this job here, as far as that can be told before it is tried."""
    mode = getattr(job.stage, "vllm", "off")
    if mode == "off":
        return
    reasons = []
    if not gpu:
        reasons.append("this machine has no GPU")
    if not _here("vllm"):
        reasons.append("the package vllm is not installed (pip install vllm, in an environment of its own)")
    if mode == "server" and not os.environ.get(VLLM_SERVER):
        reasons.append(f"{VLLM_SERVER} does not name the server")
    if reasons:
        yield Finding(
            "vllm_unavailable",
            f"stage.vllm {mode!r} does not work here: {'; '.join(reasons)}. Set it to off.",
            "error",
            "stage.vllm",
            mode,
            {"reasons": reasons},
            {"stage.vllm": "off"},
        )


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
