"""What a run becomes for others. One file per target; a new target is a file here and its name in TARGETS."""

from types import ModuleType

from core.export import adapter, card, gguf, hub, merged, ollama

TARGETS: tuple[ModuleType, ...] = (adapter, merged, gguf, ollama, hub, card)


def target_module(name: str) -> ModuleType:
    """The module of the target called `name` (as in `name` of a checked export)."""
    return next(module for module in TARGETS if module.Spec.model_fields["name"].default == name)


def target_names() -> tuple[str, ...]:
    """The names of all targets, in the order of TARGETS."""
    return tuple(module.Spec.model_fields["name"].default for module in TARGETS)
