"""Sources to files: folders and globs expanded, registries read, hub data sets fetched, gym tasks made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from data.errors import FactoryError, Finding, refuse
from data.files import find_files
from data.settings import DataSettings, Source


@dataclass(frozen=True)
class Resolved:
    """A source with the files it means."""

    source: Source
    files: tuple[str, ...]
    ignored: dict[str, str] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON for the child."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Resolved:
        """The inverse of `to_plain`."""
        return cls(Source(**plain["source"]), tuple(plain["files"]), plain["ignored"])


def resolve(settings: DataSettings) -> list[Resolved]:
    """Each source's files. Raises FactoryError with every source that has none."""
    made: list[Resolved] = []
    problems: list[Finding] = []
    for source in settings.sources:
        try:
            made.append(resolve_one(source))
        except FactoryError as error:
            problems += error.findings
    if problems:
        raise FactoryError(problems)
    return made


def resolve_one(source: Source) -> Resolved:
    """One source's files. Raises FactoryError when there are none."""
    if source.registry is not None:
        from data.registry import from_registry

        source = from_registry(source)
    if source.path is None:
        raise refuse(
            "data_no_path", "The data has no path: name a file, a folder or hub:org/name.", field="data.path"
        )
    path = source.path
    if path.startswith("gym:"):
        from data import gym

        path = str(gym.fetch(path))
    elif path.startswith("hub:"):
        from data.hub import fetch

        path = fetch(source)
    source = replace(source, path=path)
    found = find_files(path)
    return Resolved(source, tuple(str(path.absolute()) for path in found.files), found.ignored)


def total_bytes(resolved: Sequence[Resolved]) -> int:
    """Bytes on disk of all files."""
    return sum(Path(file).stat().st_size for one in resolved for file in one.files if Path(file).exists())
