"""Repetition: 0 for fresh text, falling to -1 as the same runs of words come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from core.rewards.base import Columns, RewardSpec, Scorer, Setting


class Spec(RewardSpec):
    """Does it repeat itself? Minus the share of repeated runs of words (arXiv 2502.03373, appendix)."""

    name: Literal["repetition"] = "repetition"
    """The reward."""
    run: int = Field(3, ge=1, le=100)
    """How many words in a row make a run; fewer is stricter."""
    unit: Literal["words", "characters"] = "words"
    """What runs are made of. Use characters for languages without spaces."""

    range: ClassVar[str] = "-1 to 0"


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer from 0.0 down to almost -1.0: -(1 - different runs / all runs)."""

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        return [_score(spec, text) for text in completions]

    return score


def _score(spec: Spec, completion: str) -> float:
    parts: Sequence[str] = completion.split() if spec.unit == "words" else completion
    runs = [tuple(parts[start : start + spec.run]) for start in range(len(parts) - spec.run + 1)]
    return len(set(runs)) / len(runs) - 1.0 if runs else 0.0
