"""Engine trl: Hugging Face TRL in one process on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from core.engines.base import EngineSpec

STAGES = ("pretrain", "sft")
"""Stages this engine can run."""


class Spec(EngineSpec):
    """Train with Hugging Face TRL: every stage, CPU or GPU."""

    name: Literal["trl"] = "trl"
    """The engine."""


def plan(run_dir: Path) -> list[str]:
    """The command of the training process, as an argument list; the job itself travels as a file."""
    return [sys.executable, "-m", "core.training.worker", str(run_dir)]
