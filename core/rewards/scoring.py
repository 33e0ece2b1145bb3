"""From reward specs to numbers: names, weights, tasks, and a check of every value that a reward gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.rewards.base import Columns, RewardSpec, Scorer, Setting, completion_text, short, values
from data.errors import FactoryError, Finding, refuse

Scores = list[float | None]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class NamedScorer:
    """A reward ready to score: its name in metrics, its weight, its rows. Every score it gives is checked."""

    name: str
    spec: RewardSpec
    scorer: Scorer
    setting: Setting
    place: str = "rewards"
    """Where the reward stands in the job, for findings: rewards[0]."""

    @property
    def weight(self) -> float:
        """What a score is multiplied by."""
        return self.spec.weight

    def __call__(self, completions: Sequence[str], columns: Columns) -> Scores:
        """One finite number per answer, None for rows that the reward does not apply to.

        Raises FactoryError when the reward raises, or gives too few values, NaN, or something that is no number.
        """
        rows = self._rows(len(completions), columns)
        if not rows:
            return [None] * len(completions)
        picked = {name: [column[row] for row in rows] for name, column in columns.items()}
        given = self._asked([completions[row] for row in rows], picked)
        scores: Scores = [None] * len(completions)
        for row, value in zip(rows, self._checked(given, len(rows), picked), strict=True):
            scores[row] = value
        return scores

    def _rows(self, count: int, columns: Columns) -> Sequence[int]:
        missing = [name for name in self.spec.columns if name not in columns]
        if missing:
            raise FactoryError(_column_finding(self.name, self.place, missing[0], columns))
        if self.spec.tasks is None:
            return range(count)
        return [row for row in range(count) if columns["task"][row] in self.spec.tasks]

    def _asked(self, completions: Sequence[str], columns: Columns) -> Any:
        try:
            return self.scorer(completions, columns)
        except FactoryError:
            raise
        except Exception as problem:
            first = (str(problem).strip().splitlines() or [""])[0][:300]
            told = f"{type(problem).__name__}: {first}" if first else type(problem).__name__
            row = self._first_bad(completions, columns) if self.spec.cheap else None
            raise self._refusal("reward_failed", f"raised {told}", row, columns) from problem

    def _first_bad(self, completions: Sequence[str], columns: Columns) -> int | None:
        """The first row on which the scorer raises when it gets that row alone."""
        for row, completion in enumerate(completions):
            try:
                self.scorer([completion], {name: [column[row]] for name, column in columns.items()})
            except Exception:
                return row
        return None

    def _checked(self, given: Any, count: int, columns: Columns) -> Scores:
        if not isinstance(given, (list, tuple)):
            raise self._refusal("reward_not_a_list", f"returned {_kind(given)} instead of a list of numbers")
        if len(given) != count:
            raise self._refusal("reward_wrong_length", f"got {len(given)} values for {count} answers")
        return [self._checked_value(value, row, columns) for row, value in enumerate(given)]

    def _checked_value(self, value: Any, row: int, columns: Columns) -> float | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise self._refusal("reward_not_a_number", f"gave {_kind(value)} as a score", row, columns)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._refusal("reward_not_finite", f"gave {number} as a score", row, columns)
        return number

    def _refusal(
        self, code: str, what: str, row: int | None = None, columns: Columns | None = None
    ) -> FactoryError:
        where = ""
        if columns is not None and row is not None:
            where = f" for row {row + 1} of the batch, {prompt_of(columns, row)}"
        elif columns:
            where = f" on a batch that begins with {prompt_of(columns, 0)}"
        return refuse(
            code,
            f"the reward {self.name} {what}{where}; a reward gives one finite number or None per answer.",
            field=self.place,
            value=self.name,
            reward=self.name,
            row=row,
        )


@dataclass(frozen=True)
class Combined:
    """The scores of a batch: per reward as given, and weighted and added up; None where no reward applies."""

    scores: dict[str, Scores]
    totals: Scores


@dataclass
class Notices:
    """Warnings that would come with every batch: told the 1st, 10th, 100th … time, with the count."""

    emit: Callable[[Finding], None]
    counts: dict[str, int] = field(default_factory=dict)

    def tell(self, finding: Finding) -> None:
        """Pass a warning on, unless its like was told recently."""
        key = f"{finding.code} {finding.params.get('reward', '')}"
        self.counts[key] = count = self.counts.get(key, 0) + 1
        if count == 1:
            self.emit(finding)
        elif str(count).strip("0") == "1":
            params = {**finding.params, "times": count}
            self.emit(
                replace(finding, message=f"{finding.message[:-1]} (batch {count} like this).", params=params)
            )


def build_scorers(specs: Sequence[RewardSpec], setting: Setting) -> list[NamedScorer]:
    """The job's rewards, ready to score, with names of their own: accuracy, accuracy_2, …

    Raises FactoryError with everything that is wrong with any of them.
    """
    from core.rewards import reward_module

    setting = replace(setting, emit=Notices(setting.emit).tell)
    made: list[NamedScorer] = []
    problems: list[Finding] = []
    for index, (spec, name) in enumerate(zip(specs, names(specs), strict=True)):
        place = f"rewards[{index}]"
        try:
            scorer = reward_module(spec.name).scorer(spec, setting)
            made.append(NamedScorer(name, spec, scorer, setting, place))
        except FactoryError as error:
            problems += [
                replace(one, field=f"{place}.{one.field}" if one.field else place) for one in error.findings
            ]
    if problems:
        raise FactoryError(problems)
    return made


def names(specs: Iterable[RewardSpec]) -> list[str]:
    """What the rewards are called in metrics: their titles, numbered from the second of the same title on."""
    given: list[str] = []
    for spec in specs:
        same = sum(one == spec.title or one.startswith(f"{spec.title}_") for one in given)
        name = spec.title
        while name in given:
            same += 1
            name = f"{spec.title}_{same}"
        given.append(name)
    return given


def missing_columns(specs: Sequence[RewardSpec], columns: Collection[str]) -> list[Finding]:
    """A finding for every column that a reward needs and the data does not have."""
    return [
        _column_finding(name, f"rewards[{index}]", column, columns)
        for index, (spec, name) in enumerate(zip(specs, names(specs), strict=True))
        for column in spec.columns
        if column not in columns
    ]


def combine(scorers: Sequence[NamedScorer], completions: Sequence[str], columns: Columns) -> Combined:
    """Every reward's scores of a batch, and their weighted sums. Warns about rows that no reward applies to."""
    scores = {one.name: one(completions, columns) for one in scorers}
    weights = [one.weight for one in scorers]
    totals = [_total(weights, given) for given in zip(*scores.values(), strict=True)]
    if scorers:
        warn_of_unscored(totals, columns, scorers[0].setting.emit)
    return Combined(scores, totals)


def _total(weights: Sequence[float], given: Sequence[float | None]) -> float | None:
    counted = [weight * value for weight, value in zip(weights, given, strict=True) if value is not None]
    return math.fsum(counted) if counted else None


def warn_of_unscored(totals: Sequence[Any], columns: Columns, emit: Callable[[Finding], None]) -> None:
    """A warning when some answers got None from every reward: they teach nothing."""
    rows = [row for row, total in enumerate(totals) if total is None]
    if rows:
        emit(
            Finding(
                "reward_none_applies",
                f"no reward applies to {len(rows)} of {len(totals)} answers, the first to "
                f"{prompt_of(columns, rows[0])}: they teach nothing; check the rewards' columns and tasks.",
                "warning",
                "rewards",
                params={"rows": len(rows), "of": len(totals)},
            )
        )


def try_rewards(scorers: Sequence[NamedScorer], rows: Sequence[Row]) -> None:
    """Score made-up answers to the first rows, before a run starts: the row's own answer, then the prompt.

    Raises FactoryError with what is wrong with any reward: better now than after the first generation.
    """
    problems: list[Finding] = []
    for one in scorers:
        few = list(rows[: one.spec.trial_rows])
        # Rows of its own tasks first, or a reward for one task would be tried on nothing.
        if one.spec.tasks is not None:
            few = [row for row in rows if row.get("task") in one.spec.tasks][: one.spec.trial_rows] or few
        try:
            one(*_trial(few))
        except FactoryError as error:
            problems += error.findings
    if problems:
        raise FactoryError(problems)


def _trial(rows: Sequence[Row]) -> tuple[list[str], dict[str, list[Any]]]:
    known = dict.fromkeys(name for row in rows for name in row)
    columns = columns_of(
        [row.get("prompt", "") for row in rows], {name: [r.get(name) for r in rows] for name in known}
    )
    answers = [str(row.get("answer") or prompt) for row, prompt in zip(rows, columns["prompt"], strict=True)]
    return answers, columns


def columns_of(prompts: Sequence[Any], free: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns of a batch as rewards see them: `prompt` as text, `messages` when prompts are chats, free columns.

    What is no column of the batch (a trainer's state, its helpers, token ids) is left out.
    """
    count = len(prompts)
    free = {**_opened(free.get("extra"), count), **free}
    columns = {
        name: list(column)
        for name, column in free.items()
        if isinstance(column, (list, tuple))
        and len(column) == count
        and name not in ("completion_ids", "extra")
    }
    if any(not isinstance(prompt, str) for prompt in prompts):
        columns["messages"] = list(prompts)
    return {**columns, "prompt": [completion_text(prompt) for prompt in prompts]}


def _opened(extra: Any, count: int) -> dict[str, list[Any]]:
    """The free columns that data.rows keeps under `extra`, one dict (or its JSON text) a row, as columns."""
    if not isinstance(extra, (list, tuple)) or len(extra) != count:
        return {}
    rows = [json.loads(one) if isinstance(one, str) else one or {} for one in extra]
    return {
        name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)
    }


def reward_functions(scorers: Sequence[NamedScorer]) -> list[Callable[..., Scores]]:
    """The rewards as a TRL trainer wants them: called by keyword with prompts, completions and all columns.

    Weights go to the trainer separately (`reward_weights`), in the same order. The last function of a batch warns
    of answers that none of them scored.
    """
    batch: list[Scores] = []

    def function_of(one: NamedScorer) -> Callable[..., Scores]:
        def reward(*, prompts: Sequence[Any], completions: Sequence[Any], **free: Any) -> Scores:
            columns = columns_of(prompts, free)
            scores = one([completion_text(completion) for completion in completions], columns)
            if one is scorers[0]:
                batch.clear()
            batch.append(scores)
            if one is scorers[-1]:
                applies = [next((v for v in row if v is not None), None) for row in zip(*batch, strict=True)]
                warn_of_unscored(applies, columns, one.setting.emit)
            return scores

        reward.__name__ = one.name
        return reward

    return [function_of(one) for one in scorers]


def prompt_of(columns: Columns, row: int) -> str:
    """How a row is named in a sentence: by its prompt."""
    prompt = values(columns, "prompt", row + 1)[row]
    return f"prompt {short(prompt)}" if prompt is not None else f"row {row + 1}"


def _column_finding(name: str, place: str, column: str, columns: Iterable[str]) -> Finding:
    there = ", ".join(sorted(columns)) or "none"
    return Finding(
        "reward_column_missing",
        f"the reward {name} needs the column {column!r}, which the data does not have; there are: {there}.",
        "error",
        place,
        column,
        {"reward": name, "column": column},
    )


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"{short(value, 40)} ({type(value).__name__})"
