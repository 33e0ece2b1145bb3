"""Relative paths of a job made absolute, so that a run means the same files wherever it is started again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from data.userpath import user_path

CHECKOUT = Path(__file__).resolve().parents[2]


PATHS = (
    "model.name",
    "model.adapter",
    "model.template",
    "data.path",
    "data.registry",
    "data.eval",
    "data.sources[].path",
    "data.sources[].registry",
    "stage.value",
    "hardware.deepspeed_config",
    "rewards[].source",
)
"""Every field of a job whose text may name a file or folder. A test finds text fields that are in no list."""


def path_fields(plain: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The fields of a job (plain values) whose text names a file or folder: dotted name, the dict it is in, its key."""
    for pattern in PATHS:
        for field, holder, key in _holders(plain, pattern.split("."), ""):
            if isinstance(holder.get(key), str):
                yield field, holder, key


def _holders(node: Any, parts: list[str], prefix: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The dicts that hold the last part of a dotted pattern; `name[]` walks a list."""
    head, *rest = parts
    if not isinstance(node, Mapping):
        return
    if not rest:
        yield prefix + head, node, head  # type: ignore[misc]
        return
    key = head.removesuffix("[]")
    inner = node.get(key)
    if not head.endswith("[]"):
        yield from _holders(inner, rest, f"{prefix}{key}.")
        return
    for place, one in enumerate(inner or ()):
        yield from _holders(one, rest, f"{prefix}{key}[{place}].")


def absolute(job: JobSpec, beside: Path | None = None, *, here: Path | None = None) -> JobSpec:
    """The job with every existing relative path absolute; hub ids, names and missing paths stay as they are.

    A path is looked for in the current folder (or in `here` instead), then in `beside` (the folder of the job file),
    then in Factory's own checkout, where the bundled samples are.
    """
    roots = [here or Path.cwd(), *([beside] if beside else []), CHECKOUT]
    plain = job.model_dump(mode="json")
    for _, holder, key in path_fields(plain):
        holder[key] = _found(holder[key], roots)
    return with_fields_set(job, type(job).model_validate(plain))


def _found(value: Any, roots: Iterable[Path]) -> Any:
    if not isinstance(value, str) or not value or "\x00" in value:
        return value
    path = user_path(value)
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


def with_fields_set(before: JobSpec, after: JobSpec) -> JobSpec:
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
