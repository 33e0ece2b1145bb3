"""The job's rows as token ids: glue between the job's words and data.prepare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from core.runs.events import Event, Warn
from core.stages import stage_module
from data.errors import Finding
from data.prepare import Prepared, PrepareSettings, prepare


def rows_for(job: JobSpec, run_home: Path, tokenizer: Any, emit: Callable[[Event], None]) -> Prepared:
    """The train and eval rows of a job, from the home's cache when nothing that decides them has changed.

    `run_home` is the home folder; `emit` takes each finding about the data as a warning event. Raises FactoryError
    when the data cannot be read, does not fit the stage, or leaves nothing to learn.
    """
    cache = run_home / "cache" / "rows"
    needs = stage_module(job.stage.name).NEEDS

    def tell(finding: Finding) -> None:
        emit(as_event(finding))

    return prepare(job.data_settings, needs, tokenizer, settings_of(job), cache, tell)


def settings_of(job: JobSpec) -> PrepareSettings:
    """What rows are prepared by, besides the data part of the job."""
    stage: Any = job.stage
    needs = stage_module(stage.name).NEEDS
    return PrepareSettings(
        max_length=stage.max_prompt_length if "prompt" in needs else stage.max_length,
        packing=getattr(stage, "packing", False),
        split_long=stage.name == "pretrain",
        train_on=getattr(stage, "train_on", "all" if stage.name == "pretrain" else "assistant"),
        eval=job.data.eval,
        seed=job.train.seed,
        stage=stage.name,
    )


def as_event(finding: Finding) -> Warn:
    """A finding in the words of a run's events: nothing worth telling is known only to the log."""
    return Warn(code=finding.code, message=finding.message, field=finding.field, level=finding.level)
