"""One file per family of data shapes. A new one is a file here and its name in FORMATS; the first that fits wins."""

from types import ModuleType

from data.formats import alpaca, messages, plain_text, prompt_completion

FORMATS: tuple[ModuleType, ...] = (prompt_completion, messages, alpaca, plain_text)


def format_module(name: str) -> ModuleType:
    """The module of the format called `name`. Raises KeyError."""
    return next((module for module in FORMATS if name == module.NAME), None) or _unknown(name)


def _unknown(name: str) -> ModuleType:
    raise KeyError(name)
