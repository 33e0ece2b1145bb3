"""Whether what a page or a script says that widgets show is of the shape that such widgets have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from data.errors import Finding
from webui.form import Field, by_id, row_forms

_TEXT = ((str,), "a text")
_SHAPES: dict[str, tuple[tuple[type, ...], str]] = {
    "radio": _TEXT,
    "choice": ((str, bool), "one of its choices"),
    "check": ((bool,), "true or false"),
    "number": ((int, float, str), "a number"),
    "value": ((str, int, float, bool), "a word or a number"),
    "text": _TEXT,
    "words": _TEXT,
    "items": _TEXT,
    "lines": _TEXT,
    "pairs": _TEXT,
    "many": ((list,), "a list of texts"),
    "rows": ((list,), "a list of objects with kind, values and other"),
}
"""What the widgets show, null aside, and its name."""


def misshaped(changes: Mapping[str, Any], name: str = "changes") -> list[Finding]:
    """What is wrong with the shapes of what widgets show, by the ids of the widgets; unknown ids are passed over.

    `name` is what the question calls them, for the findings.
    """
    known = by_id()
    return [
        finding
        for id, value in changes.items()
        if id in known
        for finding in _misshaped(known[id], value, f"{name}.{id}")
    ]


def _misshaped(field: Field, value: Any, where: str) -> Iterator[Finding]:
    if value is None:
        return
    types, words = _SHAPES[field.widget]
    fits = isinstance(value, types)
    if fits and field.widget == "many":
        fits = all(isinstance(one, str) for one in value)
    if fits and field.widget == "rows":
        fits = all(_is_row(one) for one in value)
    if not fits:
        yield Finding("wrong_shape", f"{where} takes {words} or null.", field=where)
    elif field.widget == "rows":
        for place, row in enumerate(value):
            inside = row.get("values") or {}
            for one in row_forms(field.id).get(row.get("kind"), ()):
                yield from _misshaped(one, inside.get(one.path[-1]), f"{where}[{place}].{one.path[-1]}")


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("kind"), str | None)
        and isinstance(row.get("values", {}), dict)
        and isinstance(row.get("other", {}), dict)
    )
