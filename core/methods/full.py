"""Full fine-tuning: every weight moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from core.methods.base import MethodSpec


class Spec(MethodSpec):
    """Train all weights: most capacity, most memory (weights, gradients and two optimizer states)."""

    name: Literal["full"] = "full"
    """The method."""


def loading(spec: Spec, *, gpu: bool) -> dict[str, Any]:
    """How the weights are loaded: as they are."""
    return {}


def apply(model: Any, spec: Spec, *, seed: int, task: str, adapter: Path | None) -> Any:
    """The model itself, all parameters trainable; a trained adapter was merged while loading."""
    model.requires_grad_(True)
    return model
