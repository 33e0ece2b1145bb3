"""Full fine-tuning: every weight moves."""

from __future__ import annotations

from typing import Any, Literal

from core.methods.base import MethodSpec


class Spec(MethodSpec):
    """Train all weights: most capacity, most memory (weights, gradients and two optimizer states)."""

    name: Literal["full"] = "full"
    """The method."""


def apply(model: Any, spec: Spec, *, seed: int, task: str) -> Any:
    """The model itself, all parameters trainable."""
    model.requires_grad_(True)
    return model
