"""The files of a package where people add a kind of something, by name. Each is imported when it is first looked at."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class Register(Sequence[ModuleType]):
    """The modules of a package in their order. Every file is called like the kind it holds.

    A job names one stage and one method: importing all the others too took half the time of reading a job.
    """

    def __init__(self, package: str, *names: str) -> None:
        self.package = package
        self.names = names

    def named(self, name: str) -> ModuleType:
        """The module called `name`, imported. Raises KeyError when there is none."""
        if name not in self.names:
            raise KeyError(name)
        return import_module(f"{self.package}.{name}")

    def __getitem__(self, place: Any) -> Any:
        chosen = self.names[place]
        return self.named(chosen) if isinstance(chosen, str) else tuple(map(self.named, chosen))

    def __len__(self) -> int:
        return len(self.names)
