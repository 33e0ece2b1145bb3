"""Rewards on the bench: what they give to real answers, group by group, and whether that teaches anything."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.rewards.groups import Signal, signal, spread
from core.rewards.scoring import NamedScorer, Scores, columns_of, combine
from data.errors import Finding

MOSTLY_DEAD = 0.5
"""Share of groups without signal from which most steps would teach nothing."""
DROWNING = 0.9
"""Share of the spread of all rewards that one may have before the others hardly count."""
BY_LENGTH = 0.8
"""Correlation with the answer's length from which a reward mostly measures that."""
FEWEST = 8
"""Answers below which a correlation says nothing."""


@dataclass(frozen=True)
class Group:
    """A row with its answers and what they got."""

    prompt: str
    answers: list[str]
    scores: dict[str, Scores]
    totals: Scores

    @property
    def known(self) -> list[float]:
        """The totals that are numbers."""
        return [one for one in self.totals if one is not None]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "prompt": self.prompt,
            "mean": statistics.fmean(self.known) if self.known else None,
            "spread": spread(self.known),
            "answers": [
                {
                    "text": text,
                    "total": total,
                    "scores": {name: given[at] for name, given in self.scores.items()},
                }
                for at, (text, total) in enumerate(zip(self.answers, self.totals, strict=True))
            ],
        }


@dataclass(frozen=True)
class Report:
    """What the bench saw. Times are milliseconds an answer."""

    groups: list[Group]
    weights: dict[str, float]
    times: dict[str, float]
    signal: Signal
    findings: list[Finding]

    def column(self, name: str) -> list[float]:
        """Every score of one reward that is a number."""
        return [one for group in self.groups for one in group.scores[name] if one is not None]

    def ranked(self) -> list[tuple[float, str, str]]:
        """Total, prompt and text of every scored answer, the best first."""
        every = [
            (total, group.prompt, text)
            for group in self.groups
            for text, total in zip(group.answers, group.totals, strict=True)
            if total is not None
        ]
        return sorted(every, key=lambda one: -one[0])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for scripts."""
        return {
            "rewards": [self._reward(name) for name in self.weights],
            "groups": [group.to_json() for group in self.groups],
            "mean": self.signal.mean,
            "spread": self.signal.spread,
            "without_signal": self.signal.dead,
            "findings": [one.to_json() for one in self.findings],
        }

    def _reward(self, name: str) -> dict[str, Any]:
        given = self.column(name)
        return {
            "name": name,
            "weight": self.weights[name],
            "mean": statistics.fmean(given) if given else None,
            "spread": spread(given),
            "lowest": min(given, default=None),
            "highest": max(given, default=None),
            "none": sum(one is None for group in self.groups for one in group.scores[name]),
            "ms": self.times[name],
        }


def bench(
    scorers: Sequence[NamedScorer], rows: Sequence[Mapping[str, Any]], answers: Sequence[list[str]]
) -> Report:
    """Score the answers to each row, as many for every row. Raises FactoryError with the reward that cannot."""
    groups, seconds = [], dict.fromkeys((one.name for one in scorers), 0.0)
    for row, given in zip(rows, answers, strict=True):
        columns = columns_for(row, len(given))
        for one in scorers:
            began = time.perf_counter()
            one(given, columns)
            seconds[one.name] += time.perf_counter() - began
        made = combine(scorers, given, columns)
        groups.append(Group(columns["prompt"][0], given, made.scores, made.totals))
    count = sum(len(given) for given in answers)
    totals = [total for group in groups for total in group.totals]
    told = Report(
        groups,
        {one.name: one.weight for one in scorers},
        {name: 1000 * taken / count for name, taken in seconds.items()},
        signal(totals, len(answers[0])),
        [],
    )
    return Report(
        told.groups, told.weights, told.times, told.signal, [*_warnings(told), *_empty(scorers, rows, told)]
    )


def columns_for(row: Mapping[str, Any], count: int) -> dict[str, list[Any]]:
    """The columns that a reward sees for `count` answers to one row."""
    free = {
        **row.get("extra", {}),
        **{name: value for name, value in row.items() if name not in ("extra", "prompt")},
    }
    return columns_of([row["prompt"]] * count, {name: [value] * count for name, value in free.items()})


def _warnings(told: Report) -> list[Finding]:
    found = []
    if told.signal.dead > MOSTLY_DEAD:
        dead = round(told.signal.dead * len(told.groups))
        text = (
            f"In {dead} of {len(told.groups)} groups all answers score alike, so most steps would teach nothing: take "
            "easier or harder prompts, a higher stage.temperature, more stage.num_generations, or a finer reward."
        )
        found.append(Finding("reward_no_signal", text, "warning", "rewards", told.signal.dead))
    return [*found, *_drowned(told), *_by_length(told)]


def _drowned(told: Report) -> list[Finding]:
    """One reward whose weighted spread inside the groups leaves nothing to the others."""
    spreads = {
        name: abs(weight) * statistics.fmean(spread(_numbers(group.scores[name])) for group in told.groups)
        for name, weight in told.weights.items()
    }
    whole = math.fsum(spreads.values())
    if len(spreads) < 2 or not whole:
        return []
    loudest = max(spreads, key=lambda name: spreads[name])
    others = [name for name in spreads if name != loudest and spreads[name] > 0]
    if spreads[loudest] < DROWNING * whole or not others:
        return []
    text = (
        f"{loudest} makes {spreads[loudest] / whole:.0%} of the differences inside groups and drowns "
        f"{', '.join(others)}; lower its weight ({told.weights[loudest]:g})."
    )
    place = list(told.weights).index(loudest)
    return [
        Finding("reward_drowns_others", text, "warning", f"rewards[{place}].weight", told.weights[loudest])
    ]


def _by_length(told: Report) -> list[Finding]:
    found = []
    for place, name in enumerate(told.weights):
        pairs = [
            (len(text), score)
            for group in told.groups
            for text, score in zip(group.answers, group.scores[name], strict=True)
            if score is not None
        ]
        if name.startswith("length") or len(pairs) < FEWEST:
            continue
        related = correlation(pairs)
        if related is not None and abs(related) > BY_LENGTH:
            way = "longer" if related > 0 else "shorter"
            text = (
                f"{name} goes with the length of the answer (correlation {related:.2f}): the model will learn to write "
                f"{way}, whatever else is meant."
            )
            found.append(Finding("reward_by_length", text, "warning", f"rewards[{place}]", related))
    return found


def _empty(scorers: Sequence[NamedScorer], rows: Sequence[Mapping[str, Any]], told: Report) -> list[Finding]:
    """Rewards that like an empty answer better than the answers at hand."""
    found = []
    for place, one in enumerate(scorers):
        given = told.column(one.name)
        if not one.spec.cheap or not given:
            continue
        empty = _numbers([one([""], columns_for(row, 1))[0] for row in rows])
        if empty and one.weight > 0 and statistics.fmean(empty) > statistics.fmean(given) + 1e-9:
            text = (
                f"{one.name} gives an empty answer {statistics.fmean(empty):.2f}, and the answers at hand "
                f"{statistics.fmean(given):.2f}: saying nothing would be learnt; add a reward that asks for an answer."
            )
            found.append(
                Finding("reward_likes_empty", text, "warning", f"rewards[{place}]", statistics.fmean(empty))
            )
    return found


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's correlation; None when one side does not vary."""
    first, second = zip(*pairs, strict=True)
    if not spread(first) or not spread(second):
        return None
    return statistics.correlation(first, second)


def _numbers(scores: Sequence[float | None]) -> list[float]:
    return [one for one in scores if one is not None]
