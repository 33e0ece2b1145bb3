"""Packages that only some jobs need: which, and the one command that brings them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from core.engines import engine_module
from core.job.environments import environment
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


def missing_packages(job: JobSpec, home: Path) -> Iterator[Finding]:
    """A finding for each package this job needs and the Python that trains it does not have. Imports none of them."""
    own = engine_module(job.engine.name).ENVIRONMENT
    place = environment(own) if own else None
    if place is not None and place.packages_folder(home) is None:
        return  # the engine itself is not installed, and that is told
    pip = "pip" if place is None else f"{place.python(home)} -m pip"

    def missing(module: str) -> bool:
        if place is None:
            return not _here(module)
        folder = place.packages_folder(home)
        return folder is None or not any((folder / name).exists() for name in (module, f"{module}.py"))

    if (needs := package_for(job.train.optimizer)) is not None and missing(needs[1]):
        yield _finding("train.optimizer", job.train.optimizer, needs[0], pip)
    if job.method.name == "qlora" and missing("bitsandbytes"):
        yield _finding("method", "qlora", "bitsandbytes", pip)
    for tracker in job.report_to:
        if missing(tracker):
            yield _finding("report_to", tracker, tracker, pip)


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


def _finding(field: str, value: str, package: str, pip: str) -> Finding:
    return Finding(
        "package_missing",
        f"{field} {value!r} needs the package {package}, which the Python that trains does not have; "
        f"run: {pip} install {package}",
        "error",
        field,
        value,
        {"package": package},
    )
