"""What every stage has in common. A stage file holds `Spec`, `NEEDS`, `TASK` and `build(context)`."""

from __future__ import annotations

from core.job.base import Named


class StageSpec(Named):
    """A training stage and the settings that only it has."""

    @property
    def repeats(self) -> int:
        """How often each row comes up in one epoch: once, or once for every answer made to it."""
        return 1
