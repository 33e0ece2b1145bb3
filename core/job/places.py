"""Relative paths of a job made absolute, so that a run means the same files wherever it is started again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec

CHECKOUT = Path(__file__).resolve().parents[2]
DATA_PATHS = ("path", "registry", "eval")


def absolute(job: JobSpec, beside: Path | None = None) -> JobSpec:
    """The job with every existing relative path absolute; hub ids, names and missing paths stay as they are.

    A path is looked for in the current folder, then in `beside` (the folder of the job file), then in Factory's
    own checkout, where the bundled samples are.
    """
    roots = [Path.cwd(), *([beside] if beside else []), CHECKOUT]
    plain = job.model_dump(mode="json")
    model, data = plain["model"], plain["data"]
    for key in ("name", "adapter", "template"):
        model[key] = _found(model[key], roots)
    if "value" in plain["stage"]:
        plain["stage"]["value"] = _found(plain["stage"]["value"], roots)
    for reward in plain["rewards"]:
        reward.update({"source": _found(reward["source"], roots)} if "source" in reward else {})
    for source in [data, *(data.get("sources") or ())]:
        for key in DATA_PATHS:
            source.update({key: _found(source[key], roots)} if key in source else {})
    return _with_fields_set(job, type(job).model_validate(plain))


def _found(value: Any, roots: Iterable[Path]) -> Any:
    if not isinstance(value, str) or not value or "\x00" in value:
        return value
    path = Path(value).expanduser()
    if path.is_absolute():
        return str(path)
    there = (root / path for root in roots)
    return next((str(found.resolve()) for found in there if _exists(found)), value)


def _exists(path: Path) -> bool:
    if any(mark in path.name for mark in "*?["):
        return path.parent.is_dir() and any(path.parent.glob(path.name))
    try:
        return path.exists()
    except OSError:  # a name too long for the system is no path
        return False


def _with_fields_set(before: JobSpec, after: JobSpec) -> JobSpec:
    """`after`, remembering which fields the user wrote in `before` (validation of a full dump marks all as set)."""
    parts: dict[str, Any] = {}
    for name in type(after).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if hasattr(new, "model_fields_set"):
            values = {key: getattr(new, key) for key in type(new).model_fields}
            parts[name] = type(new).model_construct(_fields_set=set(old.model_fields_set), **values)
        else:
            parts[name] = new
    return type(after).model_construct(_fields_set=set(before.model_fields_set), **parts)
