"""Length: 0 within the wanted length, falling to -1 outside: a penalty that leaves other rewards alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from core.rewards.base import Columns, RewardSpec, Scorer, Setting


class Spec(RewardSpec):
    """Is it too short or too long? 0 inside the bounds, falling evenly to -1 (soft overlong punishment of DAPO,
    arXiv 2503.14476, eq. 13)."""

    name: Literal["length"] = "length"
    """The reward."""
    unit: Literal["words", "characters"] = "words"
    """What is counted. Use characters for languages without spaces."""
    shortest: int = Field(1, ge=0, le=10_000_000)
    """Shorter than this is punished."""
    longest: int = Field(300, ge=1, le=10_000_000)
    """Longer than this is punished."""
    fade: int = Field(100, ge=0, le=10_000_000)
    """Over how many words or characters beyond a bound the score falls from 0 to -1; 0 falls at once."""

    range: ClassVar[str] = "-1 to 0"

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest ({self.shortest}) must not be above longest ({self.longest})")
        return self


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer from 0.0 down to -1.0."""

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        return [_score(spec, text) for text in completions]

    return score


def _score(spec: Spec, completion: str) -> float:
    count = len(completion.split()) if spec.unit == "words" else len(completion)
    beyond = max(spec.shortest - count, count - spec.longest, 0)
    if not beyond:
        return 0.0
    return -min(1.0, beyond / spec.fade) if spec.fade else -1.0
