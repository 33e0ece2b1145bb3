"""What a job may say: the JSON schema of the spec, and the allowed values of every field in words.

Refusals, docs and `factory schema` read the fields from here, so a new stage, method or field shows up in all
of them without touching any.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from core.job.base import Spec
from core.job.reading import FieldPath
from core.job.spec import JobSpec

Schema = Mapping[str, Any]


@cache
def job_schema() -> Schema:
    """The JSON schema of a job (draft 2020-12), as `factory schema` prints it."""
    return JobSpec.model_json_schema(schema_generator=_WithHelp)


@cache
def field_help(model: type[Spec]) -> Mapping[str, str]:
    """The help of each field of a part of a job: the text that stands under the field in the source."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, Spec) and kind is not Spec:
            found |= _texts(ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0])
    return found


def _texts(definition: ast.stmt) -> dict[str, str]:
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


class _WithHelp(GenerateJsonSchema):
    """pydantic's schema with the help of every field as its description."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        kind: type[Spec] = schema["cls"]
        texts = field_help(kind)
        for name, node in made.get("properties", {}).items():
            node.setdefault("description", texts[name])
        return made


def alternatives(node: Schema) -> Iterator[Schema]:
    """The plain nodes a schema node stands for, references and unions opened."""
    if "$ref" in node:
        yield from alternatives(job_schema()["$defs"][node["$ref"].rsplit("/", 1)[1]])
        return
    inner = node.get("anyOf") or node.get("oneOf")
    if inner is None:
        yield node
        return
    for one in inner:
        yield from alternatives(one)


def objects(node: Schema, value: Any) -> list[Schema]:
    """The object forms of a node; of forms told apart by `name`, the one that the value names."""
    found = [one for one in alternatives(node) if "properties" in one]
    name = value.get("name") if isinstance(value, dict) else None
    chosen = [one for one in found if one["properties"].get("name", {}).get("const") == name]
    return chosen or found


def node_at(path: FieldPath, value: Any) -> Schema | None:
    """The schema node of a field of this job; None for a field that no form of it has."""
    node: Schema = job_schema()
    for part in path:
        if isinstance(part, int):
            items = [one["items"] for one in alternatives(node) if "items" in one]
            node = {"anyOf": items}
        else:
            homes = [one["properties"] for one in objects(node, value)]
            free = [
                extra
                for one in alternatives(node)
                if isinstance(extra := one.get("additionalProperties"), dict)
            ]
            found = [home[part] for home in homes if part in home] or free
            if not found:
                return None
            node = {"anyOf": found}
        value = step(value, part)
    return node


def step(value: Any, part: str | int) -> Any:
    """One part of a dict or list; None where there is no such part."""
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def value_at(value: Any, path: FieldPath) -> Any:
    """The value of a field in plain values; None where the path leads nowhere."""
    for part in path:
        value = step(value, part)
    return value


@cache
def all_fields() -> tuple[str, ...]:
    """Every dotted field of every kind of job, for the nearest name of a typo."""

    def walk(node: Schema, prefix: str) -> Iterator[str]:
        for one in alternatives(node):
            for key, inner in one.get("properties", {}).items():
                yield prefix + key
                yield from walk(inner, f"{prefix}{key}.")

    return tuple(dict.fromkeys(walk(job_schema(), "")))


def allowed(node: Schema) -> str:
    """What a schema node lets in, as the end of "must be ...": `a whole number from 1 to 1,000`."""
    forms = list(alternatives(node))
    plain = [one for one in forms if "properties" not in one] or forms
    words = [_allowed_one(one) for one in plain if one.get("type") != "null" and not names_of(one)]
    names = names_of(node)
    if names:
        words.insert(0, _choices(names))
    return " or ".join(dict.fromkeys(words)) or "nothing"


def names_of(node: Schema) -> list[str]:
    """The fixed values among which a field chooses, in the order of the spec."""
    forms = [one for one in alternatives(node) if "properties" not in one]
    found = [one.get("enum", [one["const"]] if "const" in one else []) for one in forms]
    return list(dict.fromkeys(str(name) for names in found for name in names))


def _allowed_one(node: Schema) -> str:
    kind = node.get("type")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(node)
    if kind == "array":
        return f"a list, each of it {allowed(node['items'])}{_length(node, 'Items', 'entries')}"
    if kind == "string":
        pattern = f" of the form {node['pattern']}" if "pattern" in node else ""
        return "text" + (
            f" of {node['shape']}" if "shape" in node else pattern or _length(node, "Length", "characters")
        )
    return {"boolean": "true or false", "object": "a group of settings"}.get(str(kind), "any value")


def _choices(names: Sequence[str]) -> str:
    return " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"


def _bounds(node: Schema) -> str:
    keys = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    low, above, high, below = (_number(node.get(key)) for key in keys)
    start = f" from {low}" if low else f" above {above}" if above else ""
    if high:
        return f"{start} to {high}" if low else f"{start} up to {high}"
    return f"{start}{' and' if start else ''} below {below}" if below else start


def _number(value: float | None) -> str:
    """A bound as people write it, `1,000`; empty for no bound."""
    if value is None:
        return ""
    return f"{int(value):,}" if float(value).is_integer() else str(value)


def _length(node: Schema, kind: str, noun: str) -> str:
    least, most = node.get(f"min{kind}"), node.get(f"max{kind}")
    if most is not None and least == most:
        return f" of {most:,} {noun.removesuffix('s') if most == 1 else noun}"
    if most is not None:
        return f" (at most {most:,} {noun})" if not least else f" ({least:,} to {most:,} {noun})"
    return f" (at least {least:,} {noun})" if least else ""
