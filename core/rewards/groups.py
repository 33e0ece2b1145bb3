"""Is there anything to learn from? The spread of scores inside a group of answers to one prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDING = 1e-6
"""Scores closer than this, relative above 1, are the same score with rounding in between (fp32 has 1.2e-7)."""


@dataclass(frozen=True)
class Signal:
    """What the scores of a batch of groups offer to a stage that compares answers inside a group."""

    mean: float
    spread: float
    """Mean of the groups' spreads."""
    dead: float
    """Share of groups in which all answers scored alike: they teach nothing."""


def spread(scores: Sequence[float]) -> float:
    """The standard deviation (n - 1) of a group's scores; exactly 0 where they differ by rounding only.

    Computed around the mean: sqrt(E[x²] - E[x]²) would leave a remainder for equal scores, and a division by that
    remainder blows an advantage up by thousands.
    """
    if len(scores) < 2 or max(scores) - min(scores) <= ROUNDING * max(1.0, *map(abs, scores)):
        return 0.0
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1))


def signal(totals: Sequence[float | None], group: int) -> Signal:
    """The signal in totals that lie group after group; answers without a score are left out of their group.

    Raises ValueError when the totals do not come in whole groups.
    """
    if group < 1 or len(totals) % group or not totals:
        raise ValueError(f"{len(totals)} scores are no whole groups of {group}")
    groups = [totals[start : start + group] for start in range(0, len(totals), group)]
    scored = [[score for score in one if score is not None] for one in groups]
    every = [score for one in scored for score in one]
    spreads = [spread(one) for one in scored]
    return Signal(
        mean=math.fsum(every) / len(every) if every else 0.0,
        spread=math.fsum(spreads) / len(spreads),
        dead=sum(not one for one in spreads) / len(spreads),
    )
