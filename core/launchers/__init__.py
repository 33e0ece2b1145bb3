"""Where a run runs. One file per place; a new place is a file here and its name in LAUNCHERS."""

from types import ModuleType

from core.launchers import local

LAUNCHERS: tuple[ModuleType, ...] = (local,)
