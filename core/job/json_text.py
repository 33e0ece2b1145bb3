"""JSON to plain values, by the same rules as YAML: no repeated keys, finite numbers, the same limits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from core.job.reading import (
    MAX_DEPTH,
    MAX_NODES,
    FieldPath,
    Position,
    Reading,
    broken,
    dotted,
    number_of,
    too_deep,
    too_many,
)
from data.errors import Finding

# A string that never ends matches too, up to the end of the text; or each of its quotes would be tried anew.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        first = token[0][0]
        depth += (first in "[{") - (first in "]}")
        deepest = max(deepest, depth)
    return deepest


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written, repeated keys and all, until its path is known."""


def read_json(text: str, origin: str) -> Reading | None:
    """The reading of a JSON text; None when it is not JSON (it may still be YAML in braces)."""
    if _depth(text) > MAX_DEPTH:
        # The depth is checked first: Python's own parser would recurse as deep as the text asks.
        raise too_deep(origin)
    try:
        # Numbers stay text here and are read by the same rules as YAML's, with their field at hand.
        raw = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_Digits, parse_float=_Digits, parse_constant=_Digits
        )
    except json.JSONDecodeError as error:
        if origin.lower().endswith(".json"):
            raise broken(origin, _words(error), Position(error.lineno, error.colno)) from None
        return None
    reader = _JsonReader(origin)
    reader.out.value = reader.plain(raw, ())
    return reader.out


def _words(error: json.JSONDecodeError) -> str:
    return error.msg[0].lower() + error.msg[1:]


class _Digits(str):
    """A JSON number as it was written."""


class _JsonReader:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.nodes = 0
        self.out = Reading()

    def plain(self, raw: Any, path: FieldPath) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise too_many(self.origin)
        if isinstance(raw, _Pairs):
            return self._object(raw, path)
        if isinstance(raw, list):
            return [self.plain(item, (*path, index)) for index, item in enumerate(raw)]
        if isinstance(raw, _Digits):
            return self._number(raw, path)
        return raw

    def _object(self, pairs: Sequence[tuple[str, Any]], path: FieldPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, raw in pairs:
            self.nodes += 1
            value = self.plain(raw, (*path, key))
            if key in found:
                self._tell("duplicate_key", (*path, key), "is written twice; keep one")
            else:
                found[key] = value
        return found

    def _number(self, digits: str, path: FieldPath) -> Any:
        if digits in ("NaN", "Infinity", "-Infinity"):
            self._tell("bad_number", path, f"{digits} is not a number to compute with; write a finite number")
            return None
        value, problem = number_of(digits)
        if problem:
            self._tell("bad_number", path, problem)
        return value

    def _tell(self, code: str, path: FieldPath, what: str) -> None:
        self.out.findings.append(
            Finding(
                code,
                f"{dotted(path)}: {what} ({self.origin}).",
                field=dotted(path) or None,
                params={"origin": self.origin},
            )
        )
