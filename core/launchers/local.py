"""Launcher local: the training process is a child of the run's supervisor, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from core.launchers.base import LauncherSpec

if TYPE_CHECKING:
    from core.job.spec import JobSpec


class Spec(LauncherSpec):
    """Train on this machine, in its queue."""

    name: Literal["local"] = "local"
    """The launcher."""


def command(training: Sequence[str]) -> list[str]:
    """What the supervisor starts for a training command; the run folder follows as its last word."""
    return list(training)


def ending() -> list[str]:
    """The command that ends what is left of a run elsewhere: none, as there is nothing elsewhere."""
    return []


def steps(job: JobSpec, training: Sequence[str]) -> list[tuple[str, str]]:
    """What `factory plan` shows besides the training command: nothing."""
    return []
