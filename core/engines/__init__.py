"""What does the training. One file per engine; a new engine is a file here, called like it, and its name in ENGINES."""

from types import ModuleType

from core.job.register import Register

ENGINES = Register(__name__, "trl", "unsloth", "auto")


def engine_module(name: str) -> ModuleType:
    """The module of the engine called `name` (as in `engine.name` of a checked job)."""
    return ENGINES.named(name)
