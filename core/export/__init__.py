"""What a run becomes for others. One file per target; a new target is a file here, called like it, and its name in
TARGETS.
"""

from types import ModuleType

from core.job.register import Register

TARGETS = Register(__name__, "adapter", "merged", "gguf", "ollama", "hub", "card")


def target_module(name: str) -> ModuleType:
    """The module of the target called `name` (as in `name` of a checked export)."""
    return TARGETS.named(name)


def target_names() -> tuple[str, ...]:
    """The names of all targets, in the order of TARGETS."""
    return TARGETS.names
