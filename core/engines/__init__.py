"""What does the training. One file per engine; a new engine is a file here and its name in ENGINES."""

from types import ModuleType

from core.engines import trl

ENGINES: tuple[ModuleType, ...] = (trl,)


def engine_module(name: str) -> ModuleType:
    """The module of the engine called `name` (as in `engine.name` of a checked job)."""
    return next(module for module in ENGINES if module.Spec.model_fields["name"].default == name)
