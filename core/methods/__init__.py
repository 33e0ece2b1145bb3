"""How it is trained. One file per method; a new method is a file here, called like it, and its name in METHODS."""

from types import ModuleType

from core.job.register import Register

METHODS = Register(__name__, "full", "lora", "qlora", "freeze")
ADAPTERS = ("lora", "qlora")
"""Methods that put an adapter beside frozen weights: without it, the model is what it was."""


def method_module(name: str) -> ModuleType:
    """The module of the method called `name` (as in `method.name` of a checked job)."""
    return METHODS.named(name)
