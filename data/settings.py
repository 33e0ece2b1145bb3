"""How data is read and shaped, as plain frozen values. `core.job.data.DataSpec` is its checked, documented front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Source:
    """One place rows come from: a file, folder, glob, hub data set, or an entry of a dataset_info.json."""

    path: str | None = None
    registry: str | None = None
    name: str | None = None
    split: str = "train"
    subset: str | None = None
    revision: str | None = None
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    take: int | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Choices:
    """The questions a file can leave open, with the answers taken by default."""

    pairs: str = "best_vs_worst"
    labels: Mapping[str, bool] = field(default_factory=dict)
    threshold: float | None = None
    score: str | None = None
    separator: str = "\n"
    instruction: str | None = None
    keep: tuple[str, ...] = ()
    context: str = "first"
    documents: str = "file"
    turns: str = "merge"
    wrap: str | None = None
    one_per_turn: bool = False
    duplicates: str = "keep"


@dataclass(frozen=True)
class DataSettings:
    """Everything that decides which canonical rows come out of which files."""

    sources: tuple[Source, ...]
    choices: Choices = Choices()
    eval: float | str | None = None
    too_long: str = "cut"

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DataSettings:
        """Settings from a DataSpec's plain JSON (`model_dump(mode="json")`) or from `to_plain`."""
        given = plain.get("sources") or [plain]
        sources = tuple(Source(**_known(Source, one)) for one in given)
        choices = plain.get("choices", plain)
        return cls(
            sources, Choices(**_known(Choices, choices)), plain.get("eval"), plain.get("too_long") or "cut"
        )

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON that `from_plain` reads back to an equal value."""
        return asdict(self)


def _known(kind: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `plain` that `kind` knows; an absent or null entry leaves its default."""
    names = {one.name for one in fields(kind)}
    return {key: value for key, value in plain.items() if key in names and value is not None}
