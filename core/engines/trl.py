"""Engine trl: Hugging Face TRL in one process on this machine."""

from __future__ import annotations

import sys
from typing import Literal

from core.engines.base import EngineSpec

STAGES = ("pretrain", "sft", "reward", "dpo", "kto", "orpo", "ppo", "grpo", "rloo")
"""Stages this engine can run."""


class Spec(EngineSpec):
    """Train with Hugging Face TRL: every stage, CPU or GPU."""

    name: Literal["trl"] = "trl"
    """The engine."""


def plan() -> list[str]:
    """The command of the training process, as an argument list; the run folder follows as its last word.

    The job itself travels as a file: no word of a user is ever part of a command.
    """
    return [sys.executable, "-m", "core.training.worker"]
