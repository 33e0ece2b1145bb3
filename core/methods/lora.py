"""LoRA: small low-rank matrices beside frozen weights (arXiv 2106.09685), through peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from core.methods.adapter import AdapterSpec, wear


class Spec(AdapterSpec):
    """Train low-rank adapters: about 1 % of the weights move, the result is a small file or merges into the base."""

    name: Literal["lora"] = "lora"
    """The method."""


def loading(spec: Spec, *, gpu: bool) -> dict[str, Any]:
    """How the base is loaded: as it is."""
    return {}


def apply(model: Any, spec: Spec, *, seed: int, task: str, adapter: Path | None) -> Any:
    """The model with a fresh adapter, or with the trained one in `adapter`."""
    return wear(model, spec, seed=seed, task=task, adapter=adapter)
