"""Whether the engine of a job can do what it asks for, and is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.engines import ENGINES, engine_module
from core.job.case import Case, find
from core.job.environments import environment
from core.job.spec import JobSpec
from data.errors import Finding


def engine_findings(case: Case) -> Iterator[Finding]:
    """What the engine cannot do, each with the engine that can; and the one command that installs it."""
    name = case.job.engine.name
    engine = engine_module(name)
    yield from _without(case.job, engine, "stage", case.job.stage.name)
    yield from _without(case.job, engine, "method", case.job.method.name)
    yield from engine.supports(case.job, gpu=case.machine.has_gpu)
    if engine.ENVIRONMENT is not None and not environment(engine.ENVIRONMENT).installed(case.home):
        yield find(
            "engine_not_installed",
            "error",
            "engine.name",
            name,
            f"engine {name} is not installed; run: factory env install {engine.ENVIRONMENT}",
        )


def able_engines(part: str, name: str) -> list[str]:
    """The engines that run a stage or method, by part: `stage` or `method`."""
    return [one for one in ENGINES.names if name in _known(engine_module(one), part)]


def _without(job: JobSpec, engine: Any, part: str, name: str) -> Iterator[Finding]:
    if name in _known(engine, part):
        return
    able = able_engines(part, name)
    advice = f"choose engine {' or '.join(able)}." if able else "no engine runs it yet."
    text = f"engine {job.engine.name} does not run {part} {name}; {advice}"
    fix = {"engine": able[0]} if able else {}
    yield find(f"engine_without_{part}", "error", "engine.name", job.engine.name, text, **fix)


def _known(engine: Any, part: str) -> tuple[str, ...]:
    known: tuple[str, ...] = engine.STAGES if part == "stage" else engine.METHODS
    return known
