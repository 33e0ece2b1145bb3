"""What the checks look at: a job on a machine, its model, and what a look at its rows tells, each found out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from core.job.forecast import Lengths
from core.job.machine import Machine
from core.job.models import ModelPlace, parameter_count
from core.job.presets import resolve
from core.job.remembered import remembered
from core.job.shape import ModelShape, shape_of
from core.job.spec import JobSpec
from core.stages import stage_module
from data.errors import FactoryError, Finding, Level
from data.files import find_files

CHARACTERS = 4
"""Characters of a token, as a rule of thumb for text in Latin letters."""
MARKS = 24
"""Tokens of a chat's marks."""
ELSEWHERE = ("hub:", "gym:")
"""Data that is no file: a data set of the hub, tasks made by a generator."""


@dataclass(frozen=True)
class Case:
    """What the checks look at. `model` is None when it was not found, which is a finding already."""

    job: JobSpec
    machine: Machine
    home: Path
    model: ModelPlace | None
    full: bool = False
    """Whether all rows are looked at, not only the first."""

    @cached_property
    def seen(self) -> dict[str, Any]:
        """What a look at the rows tells (data.look.Look as plain JSON); empty rows when they cannot be read."""
        data, needs = self.job.data_settings, stage_module(self.job.stage.name).NEEDS
        return looked(self, data, needs)

    @property
    def room(self) -> int:
        """Characters that surely do not fit the stage's limit: a token holds about four, hardly ever eight."""
        stage: Any = self.job.stage
        limit: int = stage.max_prompt_length if hasattr(stage, "max_prompt_length") else stage.max_length
        return CHARACTERS * limit

    @cached_property
    def resolved(self) -> JobSpec:
        """The job with its presets."""
        return resolve(self.job, parameters=self.parameters, gpu=self.machine.has_gpu).job

    @cached_property
    def parameters(self) -> int | None:
        """Weights of the model; None when they are not here or broken, which `_model` tells."""
        try:
            return parameter_count(self.model) if self.model is not None else None
        except FactoryError:
            return None

    @cached_property
    def shape(self) -> ModelShape | None:
        """The model's shape; None when it is not here or broken."""
        try:
            return shape_of(self.model) if self.model is not None else None
        except FactoryError:
            return None

    @cached_property
    def lengths(self) -> Lengths | None:
        """How long the rows seem to be, from the characters of those seen; None when none could be read."""
        return estimated_lengths(self.seen)


def estimated_lengths(seen: Mapping[str, Any]) -> Lengths | None:
    """Tokens from the characters of the rows seen: some more for a chat's marks."""
    if not seen["rows"]:
        return None
    longest, mean = (
        ceil(size / CHARACTERS) + MARKS for size in (seen["longest"], seen["characters"] / seen["rows"])
    )
    return Lengths(longest, mean, seen["rows"] if seen["whole"] else None, "estimated")


def find(code: str, level: Level, field: str | None, value: object, message: str, **fix: object) -> Finding:
    """A finding; keyword arguments are its fix, dots in field names written as double underscores."""
    changes = {name.replace("__", "."): new for name, new in fix.items()}
    return Finding(code, message, level, field, value, fix=changes or None)


def looked(case: Case, data: dict[str, Any], needs: Sequence[str]) -> dict[str, Any]:
    """What the rows tell. A child process with limits takes the look: the files may come from anybody."""
    stage = case.job.stage.name
    paths = [source.get("path") for source in data.get("sources") or [data]]
    if not all(paths) or any(path.startswith(ELSEWHERE) for path in paths if path):
        return _look(case, data, needs)
    try:
        files = [file for path in paths if path for file in find_files(path).files]
    except FactoryError as error:
        from data.look import Look

        return Look(findings=[one.to_json() for one in error.findings]).to_plain()
    question = ["look", data, list(needs), stage, case.full, case.room]
    found: dict[str, Any] = remembered(case.home, question, files, lambda: _look(case, data, needs))
    return found


def _look(case: Case, data: dict[str, Any], needs: Sequence[str]) -> dict[str, Any]:
    from data.look import (
        look,  # not needed for rows that are remembered, and a tenth of what a submit imports
    )

    return look(data, needs, case.job.stage.name, full=case.full, room=case.room).to_plain()
