"""Where a run runs. One file per place; a new place is a file here, called like it, and its name in LAUNCHERS."""

from types import ModuleType

from core.job.register import Register

LAUNCHERS = Register(__name__, "local", "torchrun", "slurm")


def launcher_module(name: str) -> ModuleType:
    """The module of the launcher called `name` (as in `launcher.name` of a checked job)."""
    return LAUNCHERS.named(name)
