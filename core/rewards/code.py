"""Code: runs the completion's program against the row's tests, in a child that is cut off from the machine.

Only when the operator sets FACTORY_ALLOW_CODE=1: it runs what a model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from core.job.base import unit
from core.rewards.base import Columns, RewardSpec, Scorer, Setting, values
from data.errors import Finding, refuse

ALLOW = "FACTORY_ALLOW_CODE"


class Spec(RewardSpec):
    """Does the program pass the row's tests? Needs FACTORY_ALLOW_CODE=1 from the operator."""

    name: Literal["code"] = "code"
    """The reward."""
    tests: str = Field("tests", min_length=1, max_length=200)
    """The column with the tests: Python text such as `assert add(1, 2) == 3`, or a list of such texts."""
    score: Literal["all", "share"] = "all"
    """all: 1 when every test passes, else 0. share: the share of tests that pass."""
    seconds: float = Field(5.0, ge=0.1, le=600, json_schema_extra=unit("seconds"))
    """The time for one program with all its tests; one that takes longer fails."""
    memory_mb: int = Field(1024, ge=128, le=65_536, json_schema_extra=unit("MiB"))
    """The address space of one program."""

    range: ClassVar[str] = "0 to 1"
    operator: ClassVar[str] = ALLOW

    @property
    def columns(self) -> tuple[str, ...]:
        """The tests besides `task`."""
        return (*super().columns, self.tests)


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer from 0.0 to 1.0; None for rows without tests.

    Raises FactoryError when the operator has not allowed it. Warns when the system does not let the child be cut
    off from network, processes or disk.
    """
    from core.sandbox.child import Child, answer_each

    if setting.environ.get(ALLOW) != "1":
        raise refuse(
            "code_not_allowed",
            f"the code reward runs programs that a model wrote; the operator allows it with {ALLOW}=1 in the "
            "environment of the machine that trains.",
            value="code",
        )
    child = Child("python_tests", {"seconds": spec.seconds}, memory_mb=spec.memory_mb)
    child.start()
    if child.missing:
        setting.emit(_not_cut_off(child.missing))

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        wanted = [tests_of(one) for one in values(columns, spec.tests, len(completions))]
        items = [[program_in(text), tests] for text, tests in zip(completions, wanted, strict=True) if tests]
        found = answer_each(child, items, spec.seconds + 10)
        if problems := [why for _, why in found if why is not None]:
            setting.emit(_not_judged(problems, len(items)))
        passed = iter(found)
        return [_score(spec, next(passed)[0]) if tests else None for tests in wanted]

    return score


def program_in(completion: str) -> str:
    """The program of a completion: its last fenced block, or without a fence all that follows its thoughts."""
    answer = completion.rpartition("</think>")[2]
    parts = answer.split("```")
    if len(parts) < 3:
        return answer
    block = parts[-2] if len(parts) % 2 else parts[-1]
    first, newline, rest = block.partition("\n")
    return rest if newline and first.strip().lower() in ("", "python", "py", "python3") else block


def tests_of(value: Any) -> list[str]:
    """A row's tests as a list: a list, the JSON text of one, or one text; empty for none."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    every = value if isinstance(value, (list, tuple)) else [value]
    return [str(one) for one in every if one is not None and str(one).strip()]


def _score(spec: Spec, passed: list[bool] | None) -> float | None:
    if passed is None:
        return None
    return float(all(passed)) if spec.score == "all" else sum(passed) / len(passed)


def _not_judged(problems: Sequence[str], count: int) -> Finding:
    return Finding(
        "code_not_judged",
        f"{len(problems)} of {count} programs got no score: the process that runs them gave {problems[0]}.",
        "warning",
        "rewards",
        params={"reward": "code", "rows": len(problems), "of": count},
    )


def _not_cut_off(missing: Sequence[str]) -> Finding:
    return Finding(
        "code_not_cut_off",
        f"the code reward's programs cannot be cut off from {', '.join(missing)} on this system (it refuses user "
        "namespaces); only memory, time and file sizes are limited. Train in a container that holds nothing else.",
        "warning",
        "rewards",
        params={"reward": "code", "missing": list(missing)},
    )
