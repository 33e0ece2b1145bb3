"""Engine auto: no library of its own. core/job/choose.py puts a real one in its place before anything is planned."""

from __future__ import annotations

from typing import Literal

from core.engines.base import EngineSpec

STAGES: tuple[str, ...] = ()
METHODS: tuple[str, ...] = ()
STRATEGIES: tuple[str, ...] = ()
ENVIRONMENT = None


class Spec(EngineSpec):
    """Let the forecast choose: Unsloth for adapters on one GPU, else TRL, with DeepSpeed where memory asks for it."""

    name: Literal["auto"] = "auto"
    """The engine."""
