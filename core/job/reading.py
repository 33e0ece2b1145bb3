"""What reading a job's text gives: values, places, refusals, and how a number is written. Shared by YAML and JSON."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from data.errors import FactoryError, Finding

MAX_BYTES = 256 * 1024
MAX_NODES = 2_000
MAX_DEPTH = 20
MAX_DIGITS = 100
"""Characters of a number, far below Python's own limit of 4,300 digits."""

FieldPath = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top, such as ("hardware", "devices", 0)."""


@dataclass(frozen=True)
class Position:
    """A place in the text, both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass
class Reading:
    """What a text says: the value, where each part stands, and what is wrong with the text itself."""

    value: Any = None
    positions: dict[FieldPath, Position] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    overridden: set[FieldPath] = field(default_factory=set)
    """Fields set on the command line: their place is there, not in the text."""

    def place(self, path: FieldPath) -> Position | None:
        """Where the text says this field, or else the part of the job that it belongs to."""
        starts = (path[:length] for length in range(len(path), 0, -1))
        return next((self.positions[start] for start in starts if start in self.positions), None)

    def is_overridden(self, path: FieldPath) -> bool:
        """Whether the field, or a part of the job that holds it, was set on the command line."""
        return any(path[:length] in self.overridden for length in range(1, len(path) + 1))


def dotted(path: FieldPath) -> str:
    """A path as people write it: `train.epochs`, `devices[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASES = {"0o": 8, "0x": 16}
_BASED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def plain_value(text: str) -> tuple[Any, str | None]:
    """The value of an unquoted YAML scalar by the 1.2 core schema, and what is wrong with it, if anything."""
    if text in _CONSTANTS:
        return _CONSTANTS[text], None
    if _NOT_FINITE.fullmatch(text):
        return None, f"{text} is not a number to compute with; write a finite number"
    number = any(form.fullmatch(text) for form in (_INT, _BASED_INT, _FLOAT))
    return number_of(text) if number else (text, None)


def number_of(text: str) -> tuple[Any, str | None]:
    """The number that a text writes, and what is wrong with it, if anything."""
    if len(text) > MAX_DIGITS:
        return None, f"a number of {len(text):,} characters; write at most {MAX_DIGITS}"
    if _BASED_INT.fullmatch(text):
        return int(text[2:], _INT_BASES[text[:2]]), None
    number = int(text) if _INT.fullmatch(text) else float(text)
    if not math.isfinite(number):
        return None, f"{text} is too large for a number"
    if number == 0 and text.startswith("-"):
        return None, f"{text} is negative zero; write 0"
    return number, None


def too_much(code: str, origin: str, what: str) -> FactoryError:
    """The refusal of a text beyond a limit."""
    text = f"{origin} {what}; a job is a short description: keep the rows in a data file."
    return FactoryError(Finding(code, text, params={"origin": origin}))


def too_deep(origin: str) -> FactoryError:
    """The refusal of a text that is nested beyond MAX_DEPTH."""
    return too_much("job_too_deep", origin, f"is nested more than {MAX_DEPTH} levels deep")


def too_many(origin: str) -> FactoryError:
    """The refusal of a text with more than MAX_NODES keys and values."""
    return too_much("job_too_many_nodes", origin, f"holds more than {MAX_NODES:,} keys and values")


def broken(origin: str, what: str, at: Position) -> FactoryError:
    """The refusal of a text whose syntax is broken at a place."""
    return FactoryError(
        Finding(
            "job_syntax",
            f"{origin} cannot be read: {what} ({at}).",
            params={"origin": origin, "line": at.line, "column": at.column},
        )
    )
