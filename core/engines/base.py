"""What every engine has in common.

An engine file holds, light: `Spec`, `STAGES`, `METHODS`, `STRATEGIES` (ways to share work), `ENVIRONMENT` (the one of
envs/ it lives in; None: ours), `supports(job, gpu=)` with a finding for everything it cannot do, and `plan(job, home)`,
the command. And, heavy, what the training process asks of it: `begin(job, home)` before any library is imported,
`load(...)` and `wear(...)`.
"""

from __future__ import annotations

from core.job.base import Named


class EngineSpec(Named):
    """The library that does the training."""
