"""What every launcher has in common. A launcher file holds `Spec` and `command(training)`."""

from __future__ import annotations

from core.job.base import Named


class LauncherSpec(Named):
    """The place where the training runs."""
