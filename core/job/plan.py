"""A checked job becomes a plan: the resolved job, the exact command, and everything that makes the run repeatable."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.engines import engine_module
from core.job.machine import Machine
from core.job.models import locate, parameter_count
from core.job.presets import resolve
from core.job.spec import JobSpec

CHECKOUT = Path(__file__).resolve().parents[2]
PINNED = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "tokenizers", "safetensors", "numpy")


class Plan(BaseModel):
    """What will be run. `argv` begins with the interpreter; the run folder is its last word once the run exists."""

    model_config = ConfigDict(frozen=True)

    job: dict[str, Any]
    """The resolved job, nulls kept."""
    defaults: list[str]
    """Dotted names of the fields the user did not set."""
    preset_source: str
    """Where the schedule's defaults come from."""
    engine: str
    argv: list[str]
    environment: list[str]
    """Names of the environment variables the training process gets (values never)."""
    versions: dict[str, str]
    """Installed versions of the libraries that decide the numbers."""
    data: list[dict[str, Any]]
    """Every data file: path, bytes, sha256."""
    seed: int
    git: dict[str, Any] | None
    """Commit of this checkout and whether it was changed."""
    parameters: int | None
    """Weights of the model, from its safetensors headers."""
    rows: int | None = None
    """Training sequences per epoch, when they were counted."""
    eval_rows: int | None = None
    tokens: int | None = None
    """Tokens per epoch, padding not counted."""
    trained_tokens: int | None = None
    """Tokens per epoch that teach."""
    steps: int | None = None
    """Optimizer steps of the whole run."""
    findings: list[dict[str, Any]] = []
    """What the counting found worth telling."""
