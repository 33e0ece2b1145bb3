"""A fresh job as commented YAML: every field with its help, its default, and what it allows."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from core.job.load import check_values
from core.job.presets import resolve
from core.job.reading import plain_value
from core.job.schema import Schema, allowed, alternatives, job_schema, names_of

_HEAD = """
    # A training job. A line such as "#rank: 16" is a setting left out, and shows what holds without it.
    #   factory check job.yaml    everything that is wrong, at once
    #   factory plan job.yaml     everything that will be done
    #   factory train job.yaml    do it
"""
_PLAIN = re.compile(r"[A-Za-z0-9_./ -]*[A-Za-z0-9_./-]")
_WIDTH = 96


def new_job(
    stage: str = "sft", method: str = "lora", model: str = "smollm2-135m", data: str = "rows.jsonl"
) -> str:
    """A job of that stage and method as YAML that is valid as it stands, every other field commented out.

    A commented field shows the value it has anyway: its default, or the preset of the stage and method.
    Raises FactoryError when there is no such stage or method.
    """
    job = check_values({"model": model, "data": data, "stage": stage, "method": method})
    written, held = (
        job.model_dump(mode="json"),
        resolve(job, parameters=None, gpu=False).job.model_dump(mode="json"),
    )
    lines = textwrap.dedent(_HEAD).strip().splitlines()
    for name, node in job_schema()["properties"].items():
        if name != "schema_version":
            lines += ["", *_part(name, node, written[name], held[name])]
    return "\n".join(lines) + "\n"


def _part(name: str, node: Schema, written: Any, held: Any) -> Iterator[str]:
    """One top-level field: its help, and either its value or its settings, indented."""
    choices = names_of(node)
    yield from _comment(node["description"].rstrip(".") + (f": {' or '.join(choices)}." if choices else "."))
    if not isinstance(written, dict):
        yield _line(name, written, live=written is not None)
        return
    yield f"{name}:"
    form = next(one for one in alternatives(node) if _fits(one, written))
    for key, inner in form["properties"].items():
        live = "const" in inner or written[key] != inner.get("default")
        if not live:
            yield from _comment(f"{inner['description']} {_limits(inner)}", "  ")
        yield "  " + _line(key, held[key], live=live)


def _fits(form: Schema, value: dict[str, Any]) -> bool:
    name = form.get("properties", {}).get("name", {}).get("const")
    return "properties" in form and name in (None, value.get("name"))


def _limits(node: Schema) -> str:
    unit = f", in {node['unit']}" if "unit" in node else ""
    return f"[{allowed(node)}{unit}]"


def _comment(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _line(key: str, value: Any, *, live: bool) -> str:
    return f"{'' if live else '#'}{key}: {_scalar(value)}".rstrip()


def _scalar(value: Any) -> str:
    """A value as YAML; text goes without quotes where that cannot be misread."""
    if value is None:
        return ""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and plain_value(value) == (value, None):
        return value
    return json.dumps(value, ensure_ascii=False)
