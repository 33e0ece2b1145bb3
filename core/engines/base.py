"""What every engine has in common. An engine file holds `Spec`, `supports(job)`, `plan(job, run_dir)` and `load(job)`."""

from __future__ import annotations

from core.job.base import Named


class EngineSpec(Named):
    """The library that does the training."""
