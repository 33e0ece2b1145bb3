"""What every engine has in common. An engine file holds `Spec`, `STAGES` and `plan()`."""

from __future__ import annotations

from core.job.base import Named


class EngineSpec(Named):
    """The library that does the training."""
