"""Accuracy: 1 for the right answer, 0 for a wrong one, against the answer that stands in the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from core.job.base import unit
from core.rewards import answers
from core.rewards.base import Columns, RewardSpec, Scorer, Setting, short, values
from data.errors import Finding, refuse

Mode = Literal["math", "number", "exact", "multiple_choice", "gym"]


class Spec(RewardSpec):
    """Is the final answer right? Compares with a column of the row."""

    name: Literal["accuracy"] = "accuracy"
    """The reward."""
    mode: Mode = "math"
    """math: equal as mathematics (LaTeX, fractions, sets; library math-verify). number: equal as numbers.
    exact: the same text. multiple_choice: the same letter. gym: the scorer of the row's reasoning-gym task."""
    column: str = Field("answer", min_length=1, max_length=200)
    """The column with the right answer; a list there means that each of it is right."""
    look_in: answers.LookIn = "auto"
    """Where the answer stands in a completion. auto: <answer> tags, else \\boxed{}, else after </think>."""
    tolerance: float = Field(1e-6, ge=0, le=1)
    """Of mode number: the largest difference that still counts as equal, relative above 1."""
    case_sensitive: bool = False
    """Of mode exact: A and a differ."""
    seconds: float = Field(5.0, ge=0.1, le=600, json_schema_extra=unit("seconds"))
    """Of modes math and gym: the time for one answer; one that takes longer gets no score, and a warning."""

    @property
    def columns(self) -> tuple[str, ...]:
        """`task` besides the answer where gym needs to know whose scorer to ask."""
        own = ("task", "metadata") if self.mode == "gym" else (self.column,)
        return tuple(dict.fromkeys((*super().columns, *own)))


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer of 1.0, 0.0, or None for rows without an answer. math and gym work in a limited child process."""
    if spec.mode in ("math", "gym"):
        return _Judged(spec, setting)
    compare = {"number": _number, "exact": _exact, "multiple_choice": _choice}[spec.mode]

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        count = len(completions)
        rows = zip(
            completions, values(columns, spec.column, count), values(columns, "choices", count), strict=True
        )
        return [compare(spec, *row) for row in rows]

    return score


def wanted_answers(answer: Any) -> list[Any]:
    """The right answers of a row: the members of a list, or the one value; empty for none."""
    every = answer if isinstance(answer, (list, tuple)) else [answer]
    return [one for one in every if one is not None and str(one).strip()]


def _number(spec: Spec, completion: str, answer: Any, _: Any) -> float | None:
    wanted = [number for one in wanted_answers(answer) if (number := answers.number_in(str(one))) is not None]
    if not wanted:
        return None
    part = answers.final_answer(completion, spec.look_in)
    given = answers.number_in(part) if part is not None else None
    right = given is not None and any(answers.same_number(given, one, spec.tolerance) for one in wanted)
    return float(right)


def _exact(spec: Spec, completion: str, answer: Any, _: Any) -> float | None:
    wanted = wanted_answers(answer)
    if not wanted:
        return None
    part = answers.final_answer(completion, spec.look_in)
    if part is None:
        return 0.0
    given = answers.plain_text(part, case_sensitive=spec.case_sensitive)
    return float(
        any(answers.plain_text(str(one), case_sensitive=spec.case_sensitive) == given for one in wanted)
    )


def _choice(spec: Spec, completion: str, answer: Any, choices: Any) -> float | None:
    texts = choices.get("text") if isinstance(choices, dict) else choices
    wanted = [letter for one in wanted_answers(answer) if (letter := answers.choice_wanted(one, texts))]
    if not wanted:
        return None
    part = answers.final_answer(completion, spec.look_in)
    return float(part is not None and answers.choice_in(part, texts) in wanted)


class _Judged:
    """Modes math and gym: each answer is judged in a child process that is ended when it takes too long."""

    def __init__(self, spec: Spec, setting: Setting) -> None:
        from core.sandbox.child import Child

        self._spec, self._emit = spec, setting.emit
        self._child = Child(spec.mode, {})
        _require("math_verify" if spec.mode == "math" else "reasoning_gym", spec.mode)

    def __call__(self, completions: Sequence[str], columns: Columns) -> list[float | None]:
        from core.sandbox.child import answer_each

        make = self._math_item if self._spec.mode == "math" else self._gym_item
        items = [make(index, completion, columns) for index, completion in enumerate(completions)]
        asked = [index for index, item in enumerate(items) if isinstance(item, list)]
        verdicts = answer_each(self._child, [items[index] for index in asked], self._spec.seconds)
        scores: list[float | None] = [None if isinstance(item, list) else item for item in items]
        for index, (verdict, why) in zip(asked, verdicts, strict=True):
            scores[index] = self._score(verdict, why, completions[index], columns, index)
        return scores

    def _math_item(self, index: int, completion: str, columns: Columns) -> list[Any] | float | None:
        wanted = wanted_answers(values(columns, self._spec.column, index + 1)[index])
        if not wanted:
            return None
        part = answers.final_answer(completion, self._spec.look_in)
        return 0.0 if part is None else [_readings(part, completion), [*map(str, wanted)]]

    def _gym_item(self, index: int, completion: str, columns: Columns) -> list[Any] | None:
        count = index + 1
        task, metadata = (values(columns, name, count)[index] for name in ("task", "metadata"))
        if not isinstance(task, str) or not isinstance(metadata, str):
            return None
        prompt, answer = (values(columns, name, count)[index] for name in ("prompt", self._spec.column))
        given = answers.final_answer(completion, self._spec.look_in)
        return [given, prompt, answer, task, metadata]

    def _score(
        self, verdict: Any, why: str | None, completion: str, columns: Columns, index: int
    ) -> float | None:
        if isinstance(verdict, float):
            return verdict
        if verdict in ("right", "wrong"):
            return float(verdict == "right")
        row = short(values(columns, "prompt", index + 1)[index])
        if verdict == "no_gold":
            answer = values(columns, self._spec.column, index + 1)[index]
            problem = (
                f"the row's {self._spec.column} {short(answer)} is not mathematics; use mode: exact for texts"
            )
        else:
            problem = why or str(verdict)
        self._emit(
            Finding(
                "reward_not_judged",
                f"accuracy gave no score to {short(completion)} (prompt {row}): {problem}.",
                "warning",
                "rewards",
                params={"reward": "accuracy", "mode": self._spec.mode},
            )
        )
        return None


def _readings(part: str, completion: str) -> list[str]:
    """The final answer as text with mathematics in it, and when it was marked as the answer, as mathematics alone."""
    marked = part != completion.strip() and "\n" not in part and "$" not in part and len(part) <= 200
    return [part, f"\\boxed{{{part}}}"] if marked else [part]


def _require(module: str, mode: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise refuse(
            "reward_package_missing",
            f"mode {mode} of the accuracy reward needs the package {package}; pip install {package}.",
            field="mode",
            value=mode,
        )
