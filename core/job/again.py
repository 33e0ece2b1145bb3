"""The job of a run as a text to start from: what its user set, with paths that mean the same files everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from core.job.edit import short_form


def job_again(job: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """YAML with every field of the resolved job that was not a default; presets are chosen anew.

    `job` and `plan` are a run's job.json and plan.json.
    """
    defaults = set(plan.get("defaults") or ())
    kept = {}
    for name, value in job.items():
        part = _set_by_user(value, name, defaults)
        if name != "schema_version" and part is not None:
            kept[name] = short_form(name, part)
    return yaml.dump(kept, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _set_by_user(value: Any, name: str, defaults: set[str]) -> Any:
    """The value without defaults and empty fields; None when nothing is left."""
    if isinstance(value, Mapping):
        parts = {key: _set_by_user(inner, f"{name}.{key}", defaults) for key, inner in value.items()}
        kept = {key: part for key, part in parts.items() if part is not None}
        return kept or None
    if name in defaults or value in (None, [], {}):
        return None
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [{key: one for key, one in part.items() if one not in (None, [], {})} for part in value]
    return value


class _Dumper(yaml.SafeDumper):
    """Numbers as YAML 1.2 and 1.1 read them alike."""


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _number)
