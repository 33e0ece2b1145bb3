"""Launcher local: the training process is a child of the run's supervisor, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from core.launchers.base import LauncherSpec


class Spec(LauncherSpec):
    """Train on this machine, in its queue."""

    name: Literal["local"] = "local"
    """The launcher."""


def command(training: Sequence[str]) -> list[str]:
    """What the supervisor starts for a training command; the run folder follows as its last word."""
    return list(training)
