"""A form's widgets and the text of a job, both ways: what was not touched stays as it was written.

The text is the truth. A form is filled from it, and each change of a widget is a change of the text: the smallest
job that says the same, or, where the text has comments, the same text with that one field changed.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from core.job.data import expand_data
from core.job.edit import edited
from core.job.reader import read_text
from core.job.reading import plain_value
from core.job.schema import job_schema, value_at
from data.errors import FactoryError, refuse
from webui.form import DATA, KINDS, NOTHING, Field, by_id, fields, number_text, row_forms, said, shown

Values = dict[str, Any]
_PLAIN = re.compile(r"[A-Za-z0-9_./~+ -]*[A-Za-z0-9_./+-]")
_WIDTH = 88
"""A list of words that is longer than this stands one word a line."""


def fill(text: str) -> Values:
    """What every widget shows for the text of a job, by the ids of the fields.

    Raises FactoryError when the text cannot be read at all.
    """
    return _shown_all(_long(_read(text)))


def as_typed(values: Values, typed: Mapping[str, Any]) -> Values:
    """What widgets show, as somebody typed it where that says the same: `1.` stays on the way to `1.5`."""
    kept = {
        id: value
        for id, value in typed.items()
        if id in values and said(by_id()[id], value) == said(by_id()[id], values[id])
    }
    return {**values, **kept}


def write(text: str, changes: Mapping[str, Any]) -> str:
    """The text of a job after widgets were changed: `changes` has what they show now, by the ids of the fields.

    Raises FactoryError when the text cannot be read, or for a field that does not exist.
    """
    unknown = sorted(set(changes) - set(by_id()))
    if unknown:
        raise refuse("unknown_widget", f"There is no field {', '.join(unknown)} in the form.", value=unknown)
    was = _read(text)
    before = _long(was)
    after = copy.deepcopy(before)
    for part in KINDS:
        if part in changes:
            _choose(after, part, changes[part])
    for field in fields():
        if field.id in changes and field.key not in KINDS and _is_there(field, after):
            _put(field, before, after, changes[field.id])
    if after == before:
        return text
    after = {key: value for key, value in after.items() if value != {} or key not in before}
    return _text(text, was, before, after)


def put(text: str, changes: Mapping[str, Any]) -> str:
    """The text of a job with dotted fields set to plain values, as the fix of a finding asks for; None takes one out.

    Raises FactoryError when the text cannot be read.
    """
    was = _read(text)
    before = _long(was)
    after = copy.deepcopy(before)
    for dotted, value in changes.items():
        part, *rest = dotted.split(".")
        if not rest:
            after[part] = {"name": value} if part in KINDS and isinstance(value, str) else value
            continue
        home = _object(after, part)
        if part in KINDS and not home:
            home["name"] = kind_of(before, part)
        for one in rest[:-1]:
            home = _object(home, one)
        home[rest[-1]] = value
        if value is None:
            del home[rest[-1]]
    return text if after == before else _text(text, was, before, after)


def _object(home: Values, key: str) -> Values:
    """The object under a key; made where there is none, or something that can hold no field."""
    if not isinstance(home.get(key), dict):
        home[key] = {}
    inner: Values = home[key]
    return inner


def kind_of(values: Mapping[str, Any], part: str) -> str | None:
    """The kind of stage, method or engine that plain values name; the default where they name none."""
    name = value_at(values, (part, "name")) or by_id()[part].default
    return name if isinstance(name, str) else None


def _read(text: str) -> Values:
    reading = read_text(text, "job.yaml")
    if reading.value is None:
        return {}
    if not isinstance(reading.value, dict):
        raise refuse(
            "job_not_a_mapping", "job.yaml must hold fields such as `stage: sft`, one a line.", value=None
        )
    return {str(key): value for key, value in reading.value.items()}


def _long(values: Values) -> Values:
    """Every part in its long form, so that fields can be found by their paths."""
    long = {key: value for key, value in values.items() if value is not None}
    for part in (*KINDS, "model"):
        if isinstance(long.get(part), str):
            long[part] = {"name": long[part]}
    if "data" in long:
        long["data"] = expand_data(long["data"])
    for part in _named_lists():
        if isinstance(long.get(part), list):
            long[part] = [{"name": one} if isinstance(one, str) else one for one in long[part]]
    return copy.deepcopy(long)


def _named_lists() -> list[str]:
    """Parts of a job that are lists of objects told apart by `name`: rewards, export."""
    return [field.id for field in fields() if field.widget == "rows" and None not in row_forms(field.id)]


def _shown_all(values: Values) -> Values:
    return {
        field.id: _shown(field, values) if _is_there(field, values) else shown(field, NOTHING)
        for field in fields()
    }


def _shown(field: Field, values: Values) -> Any:
    if field.id == DATA:
        return _paths(values)
    if field.key in KINDS:
        return shown(field, kind_of(values, field.key))
    return shown(field, _said(field, values))


def _said(field: Field, values: Values) -> Any:
    home = values
    for part in field.path[:-1]:
        home = home.get(part, {})
        if not isinstance(home, dict):
            return NOTHING
    return home.get(field.path[-1], NOTHING)


def _is_there(field: Field, values: Values) -> bool:
    """Whether the kinds that the values name have this field."""
    return field.kind is None or kind_of(values, field.path[0]) == field.kind


def _paths(values: Values) -> list[str]:
    data = values.get("data")
    if not isinstance(data, dict):
        return []
    return [one["path"] for one in _sources(data) or [data] if isinstance(one.get("path"), str)]


def _sources(data: Values) -> list[Values]:
    """The sources of data that are objects; none where `sources` is no list."""
    sources = data.get("sources")
    return [one for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []


def _choose(values: Values, part: str, kind: Any) -> None:
    if kind == kind_of(values, part):
        return
    if kind is None or kind == by_id()[part].default:
        values.pop(part, None)
    else:
        values[part] = {"name": kind}


def _put(field: Field, before: Values, after: Values, widget: Any) -> None:
    """Set one field in `after`, unless its widget shows what the text says already."""
    if _is_there(field, before) and widget == _shown(field, before):
        return
    if field.id == DATA:
        _put_data(after, widget or [])
        return
    value = said(field, widget)
    if len(field.path) == 1:
        home = after
    elif isinstance(after.get(field.path[0]), dict):
        home = after[field.path[0]]
    elif value is NOTHING or value == field.default:
        return
    else:
        home = after[field.path[0]] = {}
        if field.path[0] in KINDS:
            home["name"] = field.kind
    if value is NOTHING or value == field.default:
        home.pop(field.path[-1], None)
    else:
        home[field.path[-1]] = value


def _put_data(values: Values, paths: list[str]) -> None:
    """Other files, the settings of those that stay kept."""
    data = values.get("data")
    data = values["data"] = data if isinstance(data, dict) else {}
    known = {one["path"]: one for one in _sources(data) if isinstance(one.get("path"), str)}
    data.pop("path", None)
    data.pop("sources", None)
    if len(paths) == 1:
        values["data"] = {"path": paths[0], **known.get(paths[0], {}), **data}
    elif paths:
        values["data"] = {"sources": [known.get(path, {"path": path}) for path in paths], **data}
    elif not data:
        del values["data"]


def _text(text: str, was: Values, before: Values, after: Values) -> str:
    changes = _changes(before, after)
    if "#" in text and changes is not None:
        try:
            return edited(text, changes, is_json=text.lstrip().startswith("{"))
        except FactoryError:
            pass  # said anew instead, without the comments
    if text.lstrip().startswith("{"):
        return json.dumps(_short(after, was), indent=2, ensure_ascii=False) + "\n"
    return dump(_short(after, was))


def _changes(before: Values, after: Values) -> Values | None:
    """What differs, by dotted names; None when something is gone that has no default to be set to."""
    found: Values = {}
    for part in {**before, **after}:
        old, new = before.get(part), after.get(part, {} if isinstance(before.get(part), dict) else None)
        if old == new:
            continue
        if not (isinstance(old, dict) and isinstance(new, dict)) or old.get("name") != new.get("name"):
            if part not in after:
                return None
            found[part] = _short({part: new}, {})[part]
            continue
        if part == "data" and ("sources" in old or "sources" in new):
            found[part] = new
            continue
        for key in {**old, **new}:
            if old.get(key, NOTHING) != new.get(key, NOTHING):
                found[f"{part}.{key}"] = new[key] if key in new else _default(part, key, after)
    return found


def _default(part: str, key: str, values: Values) -> Any:
    kind = kind_of(values, part) if part in KINDS else None
    field = by_id().get(".".join([part, *([kind] if kind else []), key]))
    return field.default if field else None


def _short(values: Values, was: Values) -> Values:
    """The shortest way to say it; parts that were written out stay so."""
    short = dict(values)
    for part in (*KINDS, "model"):
        if (
            isinstance(short.get(part), dict)
            and set(short[part]) == {"name"}
            and was.get(part) != short[part]
        ):
            short[part] = short[part]["name"]
    data = short.get("data")
    if isinstance(data, dict):
        short["data"] = _short_data(data)
    for part in _named_lists():
        if isinstance(short.get(part), list):
            short[part] = [
                one["name"] if isinstance(one, dict) and set(one) == {"name"} else one for one in short[part]
            ]
    return short


def _short_data(data: Values) -> Any:
    if isinstance(data.get("sources"), list):
        sources = [
            one["path"] if isinstance(one, dict) and set(one) == {"path"} else one for one in data["sources"]
        ]
        return sources if set(data) == {"sources"} else {**data, "sources": sources}
    return data["path"] if set(data) == {"path"} else data


def dump(values: Values) -> str:
    """Plain values as the YAML of a job, parts in the order of the spec, what it does not know at the end."""
    known = [name for name in job_schema()["properties"] if name in values]
    order = [*known, *(name for name in values if name not in known)]
    return "".join(_part(name, values[name]) for name in order)


def _part(name: str, value: Any) -> str:
    if isinstance(value, dict) and value:
        inside = "".join(_line(key, one, "  ") for key, one in value.items())
        return f"{_scalar(name)}:\n{inside}"
    return _line(name, value, "")


def _line(name: str, value: Any, indent: str) -> str:
    flow = _flow(value)
    if (
        isinstance(value, list)
        and value
        and (len(flow) > _WIDTH or any(isinstance(one, dict) for one in value))
    ):
        return f"{indent}{_scalar(name)}:\n" + "".join(f"{indent}  - {_flow(one)}\n" for one in value)
    return f"{indent}{_scalar(name)}: {flow}\n"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A value as YAML; text without quotes where that cannot be misread, numbers as people write them."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and plain_value(value) == (value, None):
        return value if value[0] not in "-~ " else json.dumps(value)
    if isinstance(value, float):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False)
