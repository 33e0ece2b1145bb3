"""Freeze: only the last layers move, the rest stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from core.methods.base import MethodSpec


class Spec(MethodSpec):
    """Train the last layers and named modules in full: less memory than full training, no adapter to carry."""

    name: Literal["freeze"] = "freeze"
    """The method."""
    layers: int = Field(2, ge=0, le=1000)
    """How many of the last transformer layers move."""
    modules: list[str] = []
    """Further modules that move, by name, such as lm_head or norm."""


def loading(spec: Spec, *, gpu: bool) -> dict[str, Any]:
    """How the weights are loaded: as they are."""
    return {}


def apply(model: Any, spec: Spec, *, seed: int, task: str, adapter: Path | None) -> Any:
    """The model with everything frozen but the last layers, the named modules, and a classifier's new head.

    Raises FactoryError when a name is not in the model, the model has fewer layers, or nothing would move.
    """
    from core.training.modules import check_module_names, transformer_layers
    from data.errors import refuse

    check_module_names(model, spec.modules, "method.modules")
    layers = transformer_layers(model)
    if spec.layers > len(layers):
        raise refuse(
            "too_few_layers",
            f"method.layers is {spec.layers}, but the model has {len(layers)} layers; give at most that, or use full.",
            field="method.layers",
            value=spec.layers,
            layers=len(layers),
        )
    model.requires_grad_(False)
    for layer in layers[len(layers) - spec.layers :]:
        layer.requires_grad_(True)
    heads = [*spec.modules, *(["score"] if task == "SEQ_CLS" else [])]
    for name, module in model.named_modules():
        if any(name == head or name.endswith(f".{head}") for head in heads):
            module.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise refuse(
            "nothing_trainable",
            "method.layers is 0 and method.modules is empty, so nothing would learn; set one of them.",
            field="method.layers",
            value=0,
        )
    return model
