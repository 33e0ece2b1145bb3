"""Change fields in the text of a job without touching the rest: comments, order and spelling stay as they are.

YAML is edited at the positions that its parser gives each node, then read again: when anything but the wanted fields
came out differently, the change is refused. JSON is written anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from core.job.reader import read_text
from core.job.reading import dotted
from data.errors import refuse

_SHORT = {"model": "name", "data": "path"}
"""The field that a bare word stands for; `name` in all other parts."""


def edited(text: str, changes: Mapping[str, Any], *, is_json: bool = False) -> str:
    """The text of a job with dotted fields set to plain values.

    Raises FactoryError when the text cannot be edited without changing something else.
    """
    for field, value in changes.items():
        path = field.split(".")
        before = read_text(text, "the job").value
        if is_json:
            text = json.dumps(_with(before, path, value), indent=2, ensure_ascii=False) + "\n"
        else:
            text = _set(text, path, value)
        after = read_text(text, "the job").value
        if after != _with(before, path, value):
            raise refuse(
                "fix_not_applied",
                f"{dotted(tuple(path))} could not be changed in the text without touching other fields; set it by "
                f"hand to {json.dumps(value)}.",
                field=field,
                value=value,
            )
    return text


def short_form(part: str, value: Any) -> Any:
    """A part of a job as a bare word where it is nothing but its name (data: its path)."""
    key = _SHORT.get(part, "name")
    return value[key] if isinstance(value, dict) and list(value) == [key] else value


def _with(values: Any, path: list[str], value: Any) -> Any:
    """Plain values with one field set, a part's short form made long."""
    made = dict(values)
    head, rest = path[0], path[1:]
    if not rest:
        return {**made, head: value}
    inner = made.get(head)
    if not isinstance(inner, dict):
        if inner is not None and rest == [_SHORT.get(head, "name")]:
            return {**made, head: value}  # the short form stays short
        inner = {} if inner is None else {_SHORT.get(head, "name"): inner}
    return {**made, head: _with(inner, rest, value)}


def _set(text: str, path: list[str], value: Any) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # a job that is no mapping was refused before
    key, node = _find(root, path[0])
    if node is None:
        written = _inline(value) if len(path) == 1 else _mapping(path[1:], value, "  ")
        separator = " " if len(path) == 1 else "\n"
        return _ending(text) + f"{path[0]}:{separator}{written}\n"
    if len(path) == 1:
        return _replaced(text, key, node, _inline(value))
    return _set_inside(text, key, node, path, value)


def _set_inside(text: str, key: Any, node: Any, path: list[str], value: Any) -> str:
    """Set path[1:] inside the node that stands under path[0]."""
    if isinstance(node, yaml.MappingNode):
        inner_key, inner = _find(node, path[1])
        if inner is not None:
            if len(path) == 2:
                return _replaced(text, inner_key, inner, _inline(value))
            return _set_inside(text, inner_key, inner, path[1:], value)
        addition = path[1:]
        if node.flow_style:
            return _into_braces(text, node, f"{addition[0]}: {_inline(_nested(addition[1:], value))}")
        last = node.value[-1][1]
        indent = " " * node.start_mark.column
        at = _line_end(text, _end(text, last))
        return text[:at] + "\n" + _mapping(addition, value, indent) + text[at:]
    short = _SHORT.get(path[0], "name")
    if path[1:] == [short]:
        return _replaced(text, key, node, _inline(value))
    if node.start_mark.index == node.end_mark.index:  # `train:` with nothing behind it
        at = _line_end(text, key.end_mark.index)
        indent = " " * (key.start_mark.column + 2)
        return text[:at] + "\n" + _mapping(path[1:], value, indent) + text[at:]
    whole = text[node.start_mark.index : node.end_mark.index]
    return _replaced(text, key, node, f"{{{short}: {whole}, {path[1]}: {_inline(_nested(path[2:], value))}}}")


def _find(node: Any, name: str) -> tuple[Any, Any]:
    return next(((key, value) for key, value in node.value if key.value == name), (None, None))


def _into_braces(text: str, node: Any, entry: str) -> str:
    at = node.end_mark.index - 1
    inside = text[node.start_mark.index + 1 : at].strip()
    lead = text[:at].rstrip()
    return (
        lead
        + (", " if inside and not inside.endswith(",") else "" if not inside else " ")
        + entry
        + text[at:]
    )


def _replaced(text: str, key: Any, node: Any, written: str) -> str:
    start, end = node.start_mark.index, _end(text, node)
    block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if not block and start != end:
        return text[:start] + written + text[end:]
    # A block begins on a later line and an empty value has no place: the new value stands behind the key, and a
    # comment on the key's line stays.
    colon = text.index(":", key.end_mark.index) + 1
    rest = text[colon : _line_end(text, colon)] if block else ""
    return text[:colon] + " " + written + rest + text[end if block else colon :]


def _end(text: str, node: Any) -> int:
    """Where a node's own text ends: a block's mark lies behind the comments and blank lines that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return len(text[: node.end_mark.index].rstrip())
    return int(node.end_mark.index)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _ending(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path else value


def _mapping(path: list[str], value: Any, indent: str) -> str:
    if len(path) == 1:
        return f"{indent}{path[0]}: {_inline(value)}"
    return f"{indent}{path[0]}:\n" + _mapping(path[1:], value, indent + "  ")


def _inline(value: Any) -> str:
    """A value on one line, as YAML 1.2 and 1.1 read it alike."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_inline(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if (
        isinstance(value, str)
        and value
        and value.replace("-", "").replace("_", "").isalnum()
        and not value[0].isdigit()
    ):
        return (
            value
            if value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
            else f'"{value}"'
        )
    return json.dumps(value, ensure_ascii=False)
