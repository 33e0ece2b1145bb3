"""The one mapper between the job's spec and the widgets of a form. Knows the schema, not Gradio, and no page.

Every field of every kind of job is a `Field` with the widget that suits its type. `shown` turns what a job says into
what the widget shows, `said` the other way round. A field added to a spec is here without a change.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from core.job.reading import plain_value
from core.job.schema import Schema, alternatives, job_schema, names_of

NOTHING: Any = object()
"""What a job says about a field that it does not mention."""
KINDS = ("stage", "method", "engine", "launcher")
"""Parts of a job that are one of several kinds, told apart by `name`."""
DATA = "data"
"""The id of the field for the files, which stands for data.path and data.sources."""
UNSET = ""
"""The choice that leaves an optional field to its preset."""
SHORT = 24
"""Choices that are no longer than this together are laid side by side instead of in a list."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Field:
    """A field of a job and its widget."""

    path: tuple[str, ...]
    """Where it stands in the job: ("stage", "max_length")."""
    kind: str | None
    """The kind of stage, method, engine or launcher that has it; None for the parts that every job has."""
    widget: str
    """radio, choice, many, check, number, text, lines, words, items, pairs, value; rows for a list of objects."""
    node: Schema
    default: Any
    nullable: bool
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """As people write it in YAML: stage.max_length."""
        return ".".join(self.path)

    @property
    def id(self) -> str:
        """One name for each widget: stage.sft.max_length, train.epochs."""
        return ".".join((self.path[0], self.kind, *self.path[1:]) if self.kind else self.path)

    @property
    def element(self) -> str:
        """The id of the widget in the page."""
        return "f-" + self.id.replace(".", "-")

    @property
    def help(self) -> str:
        """The text that stands under the field in the spec."""
        return " ".join(str(self.node["description"]).split())

    @property
    def unit(self) -> str | None:
        """What its number counts."""
        found: str | None = self.node.get("unit")
        return found

    @property
    def bounds(self) -> str:
        """The smallest and the largest value: `0 – 1`; empty when there are none."""
        for node in alternatives(self.node):
            least = node.get("minimum", node.get("exclusiveMinimum"))
            most = node.get("maximum", node.get("exclusiveMaximum"))
            if node.get("type") in ("integer", "number") and (least is not None or most is not None):
                above = "> " if "exclusiveMinimum" in node else "≥ " if most is None else ""
                low = "" if least is None else f"{above}{least:,g}"
                high = "" if most is None else f"{'< ' if 'exclusiveMaximum' in node else ''}{most:,.12g}"
                return f"{low} – {high}" if low and high else f"≤ {high}" if high else low
        return ""


@cache
def fields() -> tuple[Field, ...]:
    """Every field of every kind of job, in the order of the spec."""
    found: list[Field] = []
    for name, node in job_schema()["properties"].items():
        if name != "schema_version":
            found += _part(name, node)
    return tuple(found)


@cache
def by_id() -> Mapping[str, Field]:
    """The fields by their ids."""
    return {field.id: field for field in fields()}


def fields_of(node: Schema, path: tuple[str, ...], kind: str | None) -> Iterator[Field]:
    """The fields of one object form."""
    for name, inner in node["properties"].items():
        if "const" not in inner:
            yield _field((*path, name), kind, inner)


def kinds_of(node: Schema) -> dict[str, Schema]:
    """The forms among which `name` chooses, by that name."""
    forms = [one for one in alternatives(node) if "properties" in one]
    return {
        one["properties"]["name"]["const"]: one
        for one in forms
        if "const" in one["properties"].get("name", {})
    }


def _part(name: str, node: Schema) -> Iterator[Field]:
    kinds = kinds_of(node)
    if name in KINDS:
        default = {"method": "lora", "engine": "trl", "launcher": "local"}.get(name)
        yield Field((name,), None, "radio", node, default, False, tuple(kinds))
        for kind, form in kinds.items():
            yield from fields_of(form, (name,), kind)
        return
    objects = [one for one in alternatives(node) if "properties" in one]
    if not objects:
        yield _field((name,), None, node)
        return
    for form in objects:
        for field in fields_of(form, (name,), None):
            if field.key == "data.path":
                yield Field((DATA,), None, "many", node, [], False)
            else:
                yield field


def _field(path: tuple[str, ...], kind: str | None, node: Schema) -> Field:
    forms = list(alternatives(node))
    nullable = any(one.get("type") == "null" for one in forms)
    forms = [one for one in forms if one.get("type") != "null"]
    inside = [one["items"] for one in forms if "items" in one] if len(forms) == 1 else []
    choices = tuple(names_of({"anyOf": [*forms, *inside]}))
    return Field(path, kind, _widget(forms, choices, nullable), node, node.get("default"), nullable, choices)


def _widget(forms: list[Schema], choices: tuple[str, ...], nullable: bool) -> str:
    types = {one.get("type") for one in forms}
    if types == {"boolean"}:
        return "choice" if nullable else "check"
    if types == {"array"}:
        return _list_widget(forms[0])
    if "object" in types:
        return "pairs"
    if "array" in types:
        return "value" if "integer" in types else "words"
    if choices and not any("enum" not in one and "const" not in one for one in forms):
        narrow = len(choices) <= 3 and len("".join(choices)) <= SHORT
        return "radio" if narrow and not nullable else "choice"
    if types <= {"integer", "number"}:
        return "number"
    return "text" if types == {"string"} else "value"


def _list_widget(form: Schema) -> str:
    inner = list(alternatives(form["items"]))
    if any("properties" in one for one in inner):
        return "rows"
    if names_of(form["items"]):
        return "many"
    return "lines" if {one.get("type") for one in inner} == {"string"} else "items"


def shown(field: Field, value: Any) -> Any:
    """What the widget shows for what a job says; the widget's empty state for what it cannot show."""
    if value is NOTHING:
        value = field.default
    return _SHOWN[field.widget](field, value)


def said(field: Field, value: Any) -> Any:
    """What a job says for what the widget shows; NOTHING when the widget is empty."""
    return _SAID[field.widget](field, value)


def _shown_choice(field: Field, value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else UNSET


def _said_choice(field: Field, value: Any) -> Any:
    if not value:
        return NOTHING
    switch = any(one.get("type") == "boolean" for one in alternatives(field.node))
    return {"true": True, "false": False}.get(value, value) if switch else value


def number_text(value: float) -> str:
    """A number as people write it: 0.0003, 2e-5, 3."""
    return re.sub(r"e([+-])0*(\d)", lambda found: f"e{found[1].strip('+')}{found[2]}", repr(value))


def _shown_number(field: Field, value: Any) -> str:
    value = _number(value.strip()) if isinstance(value, str) else value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number_text(_whole(value)) if is_number else value if isinstance(value, str) else ""


def _said_number(field: Field, value: Any) -> Any:
    """What is no number stays as it was written: the check says so under its field."""
    value = _number(value.strip()) if isinstance(value, str) else value
    return NOTHING if value is None or value == "" else _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(text: str) -> Any:
    if _WHOLE.fullmatch(text):
        return int(text)
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    parts = text.split("\\\\")
    return "\\".join(part.replace("\\n", "\n").replace("\\t", "\t") for part in parts)


def _is_marks(field: Field) -> bool:
    """Whether its text is made of line breaks and the like, which have to be seen as backslash and letter."""
    return field.path[-1] == "separator"


def _shown_text(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return _escaped(value) if _is_marks(field) else value


def _said_text(field: Field, value: Any) -> Any:
    if not value:
        return NOTHING
    return _unescaped(value) if _is_marks(field) else value


def _plain(text: str) -> Any:
    """The value of a word as YAML reads it; the word itself where that fails."""
    value, problem = plain_value(text.strip())
    return text.strip() if problem else value


def _word(value: Any) -> str:
    """A value as one word of a text field: as YAML reads it back."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _shown_value(field: Field, value: Any) -> str:
    return "" if isinstance(value, dict) else _word(value)


def _said_value(field: Field, value: Any) -> Any:
    return _plain(str(value)) if value not in (None, "") else NOTHING


def _shown_words(field: Field, value: Any) -> str:
    return ", ".join(map(_word, value)) if isinstance(value, list) else _word(value)


def _split(value: str) -> list[str]:
    return [one.strip() for one in value.replace("\n", ",").split(",") if one.strip()]


def _said_words(field: Field, value: Any) -> Any:
    if not value:
        return NOTHING
    return value if value in field.choices else _split(value)


def _said_items(field: Field, value: Any) -> Any:
    return [_plain(one) for one in _split(value)] if value and _split(value) else NOTHING


def _shown_lines(field: Field, value: Any) -> str:
    return "\n".join(filter(None, map(_word, value))) if isinstance(value, list) else ""


def _said_lines(field: Field, value: Any) -> Any:
    lines = [one.strip() for one in (value or "").splitlines() if one.strip()]
    return lines or NOTHING


def _shown_pairs(field: Field, value: Any) -> str:
    return "\n".join(f"{key}: {_word(one)}" for key, one in value.items()) if isinstance(value, dict) else ""


def _said_pairs(field: Field, value: Any) -> Any:
    lines = [one for one in (value or "").splitlines() if one.strip()]
    pairs = [line.rpartition(":") if ":" in line else (line, "", "") for line in lines]
    texts = any(
        extra.get("type") == "string"
        for one in alternatives(field.node)
        if isinstance(extra := one.get("additionalProperties"), dict)
    )
    return {key.strip(): one.strip() if texts else _plain(one) for key, _, one in pairs} or NOTHING


@cache
def row_forms(id: str) -> Mapping[str | None, tuple[Field, ...]]:
    """The fields of the objects in a list, by the kinds that the objects may be; None where there is one kind."""
    node = next(one for one in alternatives(by_id()[id].node) if "items" in one)["items"]
    kinds: dict[str | None, Schema] = dict(kinds_of(node).items())
    if not kinds:
        kinds = {None: next(one for one in alternatives(node) if "properties" in one)}
    return {kind: tuple(fields_of(form, (id,), None)) for kind, form in kinds.items()}


def _shown_rows(field: Field, value: Any) -> list[dict[str, Any]]:
    return [_shown_row(field, one) for one in value] if isinstance(value, list) else []


def _shown_row(field: Field, value: Any) -> dict[str, Any]:
    """A row for its editor: its kind, what the widgets of its fields show, and what is of no known field."""
    forms = row_forms(field.id)
    row = value if isinstance(value, dict) else {"name" if None not in forms else "path": value}
    named = None if None in forms else row.get("name")
    kind = named if isinstance(named, str) else None
    known = forms.get(kind, ())
    names = {one.path[-1] for one in known} | ({"name"} if kind is not None else set())
    return {
        "kind": kind,
        "values": {one.path[-1]: shown(one, row.get(one.path[-1], NOTHING)) for one in known},
        "other": {key: one for key, one in row.items() if key not in names},
    }


def _said_rows(field: Field, value: Any) -> Any:
    return [_said_row(field, one) for one in value] if value else NOTHING


def _said_row(field: Field, row: Mapping[str, Any]) -> dict[str, Any]:
    kind = row.get("kind")
    told: dict[str, Any] = {} if kind is None else {"name": kind}
    for one in row_forms(field.id).get(kind, ()):
        value = said(one, row.get("values", {}).get(one.path[-1], shown(one, NOTHING)))
        if value is not NOTHING and value != one.default:
            told[one.path[-1]] = value
    return {**told, **row.get("other", {})}


def _shown_many(field: Field, value: Any) -> Any:
    return [_word(one) for one in value] if isinstance(value, list) else []


_SHOWN = {
    "radio": lambda field, value: value if value in field.choices else None,
    "choice": _shown_choice,
    "many": _shown_many,
    "check": lambda field, value: value is True,
    "number": _shown_number,
    "text": _shown_text,
    "value": _shown_value,
    "words": _shown_words,
    "items": _shown_words,
    "lines": _shown_lines,
    "pairs": _shown_pairs,
    "rows": _shown_rows,
}
_SAID = {
    "radio": lambda field, value: NOTHING if value is None else value,
    "choice": _said_choice,
    "many": lambda field, value: list(value) if value else NOTHING,
    "check": lambda field, value: bool(value),
    "number": _said_number,
    "text": _said_text,
    "value": _said_value,
    "words": _said_words,
    "items": _said_items,
    "lines": _said_lines,
    "pairs": _said_pairs,
    "rows": _said_rows,
}
