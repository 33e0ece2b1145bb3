"""What became of one key of a foreign job: the lines of an import's report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["mapped", "changed", "not needed", "not mapped"]


@dataclass(frozen=True)
class Line:
    """One key with what became of it."""

    kind: Kind
    key: str
    value: Any
    field: str | None
    """Our field that holds it now."""
    words: str
    """What is different, or why it has no place."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, the value of a secret left out."""
        return {
            "kind": self.kind,
            "key": self.key,
            "value": self.value,
            "field": self.field,
            "words": self.words,
        }


@dataclass
class Imported:
    """A job in the making: its plain values, and a line for every key of the foreign file."""

    job: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def put(self, path: str, value: Any) -> None:
        """Set a dotted field of the job."""
        node = self.job
        *heads, last = path.split(".")
        for head in heads:
            node = node.setdefault(head, {})
        node[last] = value

    def tell(self, kind: Kind, key: str, value: Any, field: str | None = None, words: str = "") -> None:
        """Add a line to the report."""
        self.lines.append(Line(kind, key, value, field, words))
