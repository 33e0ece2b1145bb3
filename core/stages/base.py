"""What every stage has in common. A stage file holds `Spec`, `NEEDS`, `TASK` and `build(context)`."""

from __future__ import annotations

from core.job.base import Named


class StageSpec(Named):
    """A training stage and the settings that only it has."""
