"""What every launcher has in common. A launcher file holds `Spec`, `command`, `ending` and `steps`; what
it does while a run lives is in core/nodes."""

from __future__ import annotations

from core.job.base import Named


class LauncherSpec(Named):
    """The place where the training runs."""
