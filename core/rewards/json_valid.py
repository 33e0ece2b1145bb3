"""JSON: 1 when the completion is JSON with the wanted keys, else 0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NoReturn

from pydantic import Field

from core.rewards.base import Columns, RewardSpec, Scorer, Setting


class Spec(RewardSpec):
    """Is it JSON? Optionally an object with certain keys."""

    name: Literal["json_valid"] = "json_valid"
    """The reward."""
    keys: list[str] = Field([], max_length=100)
    """Keys that the outer object must have."""
    fenced: bool = True
    """Also accept JSON inside one ```json fence, with text around it."""


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer of 1.0 or 0.0. NaN and Infinity are not JSON (RFC 8259)."""

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        return [_score(spec, text) for text in completions]

    return score


def _score(spec: Spec, completion: str) -> float:
    try:
        value = json.loads(_inside(completion) if spec.fenced else completion, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return 0.0
    if not spec.keys:
        return 1.0
    return float(isinstance(value, dict) and all(key in value for key in spec.keys))


def _inside(completion: str) -> str:
    """What stands in the only fence of a completion; the completion itself without one."""
    parts = completion.split("```")
    return parts[1].removeprefix("json") if len(parts) == 3 else completion


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
