"""What every method has in common. A method file holds `Spec`, `loading` and `apply`."""

from __future__ import annotations

from core.job.base import Named


class MethodSpec(Named):
    """A way to train: which weights move."""
