"""Every leaf field of a job, found in the spec itself, and a value for each that says something else than its default.

A new field turns up here by itself; tests/cpu/test_mapping.py then wants to see what it changes.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.engines import ENGINES
from core.export import TARGETS
from core.job.data import DataSpec, SourceSpec
from core.job.hardware import HardwareSpec
from core.job.register import Register
from core.job.spec import EvaluateSpec, JobSpec, ModelSpec, TrainSpec
from core.launchers import LAUNCHERS
from core.methods import METHODS
from core.rewards import REWARDS
from core.stages import STAGES

PARTS: dict[str, type[BaseModel]] = {
    "model": ModelSpec,
    "data": DataSpec,
    "train": TrainSpec,
    "hardware": HardwareSpec,
    "evaluate": EvaluateSpec,
}
KINDS: dict[str, Register] = {
    "stage": STAGES,
    "method": METHODS,
    "engine": ENGINES,
    "launcher": LAUNCHERS,
    "rewards": REWARDS,
    "export": TARGETS,
}
NESTED = {"data.sources": SourceSpec}


def leaves() -> Iterator[tuple[str, FieldInfo]]:
    """Path and field of every leaf: `train.epochs`, `stage[sft].max_length`, `data.sources[].path`, `name`."""
    for name, field in JobSpec.model_fields.items():
        if name in PARTS:
            yield from _of(PARTS[name], name)
        elif name in KINDS:
            for module in KINDS[name]:
                yield from _of(module.Spec, f"{name}[{module.Spec.model_fields['name'].default}]")
        else:
            yield name, field


def _of(spec: type[BaseModel], path: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in spec.model_fields.items():
        own = f"{path}.{name}"
        if own in NESTED:
            yield from _of(NESTED[own], f"{own}[]")
        elif not (name == "name" and "[" in path and not path.endswith("[]")):
            yield own, field


def other(field: FieldInfo) -> Any:
    """A value of the field's type that is not its default. Raises LookupError where the type alone does not say."""
    default = field.get_default(call_default_factory=True)
    for kind in _alternatives(field.annotation):
        if kind is bool:
            return not default
        if get_origin(kind) is Literal and (others := [one for one in get_args(kind) if one != default]):
            return others[0]
        if kind in (int, float):
            return _number(kind, default, field)
    raise LookupError


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _alternatives(one)
    elif hasattr(annotation, "__metadata__"):
        yield from _alternatives(annotation.__origin__)
    else:
        yield annotation


def _number(kind: type, default: Any, field: FieldInfo) -> Any:
    bounds = {
        name: getattr(one, name)
        for one in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if hasattr(one, name)
    }
    top, bottom = bounds.get("le", bounds.get("lt", 10**9)), bounds.get("ge", bounds.get("gt", 0))
    if kind is int:
        wanted = 3 if default is None else default + 1
        return wanted if wanted <= top else default - 1
    start = bottom if default is None else default
    wanted = (
        start + 0.25 if start + 0.25 < top else start - 0.25 if start - 0.25 > bottom else (bottom + top) / 2
    )
    return float(wanted)
