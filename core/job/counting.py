"""What needs a tokenizer is asked of a child process: transformers takes seconds to import, and may crash on a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.engines import engine_module
from core.job.forecast import measured
from core.job.machine import CHECKOUT, Machine
from core.job.plan import Counts, Plan, make_plan
from core.job.row_checks import counted_findings
from core.job.spec import JobSpec
from data.errors import FactoryError, Finding, findings_of, refuse


def counted_plan(asked: JobSpec, home: Path, machine: Machine, *, beside: Path | None = None) -> Plan:
    """The plan of a job with its data counted. Raises FactoryError when the job cannot be prepared."""
    made = make_plan(asked, home, machine, beside=beside)
    counts = _count(made, home)
    told = [*counts.findings, *(one.to_json() for one in counted_findings(made.job_spec, counts))]
    counts = counts.model_copy(update={"findings": told})
    return make_plan(asked, home, machine, beside=beside, counts=counts)


def told_with(findings: Sequence[Finding], plan: Plan) -> list[Finding]:
    """The findings of the checks, and those that counting the plan's rows added."""
    counted = findings_of(plan.counts.findings) if plan.counts else []
    known = {one.code for one in findings}
    return [*findings, *(one for one in counted if one.code not in known)]


def _count(plan: Plan, home: Path) -> Counts:
    """The data of a plan, counted by a child process, since tokenizers come with torch. Raises FactoryError."""
    return Counts.model_validate_json(ask("core.training.measure", plan, home))


def probed(plan: Plan, home: Path) -> Plan:
    """The plan with memory and time as two real steps show them.

    Raises FactoryError when they fail, and for an engine with an environment of its own, where no steps are tried.
    """
    if engine_module(plan.engine).ENVIRONMENT is not None:
        text = f"--probe tries two steps with engine trl, and the job has engine {plan.engine}; leave --probe out."
        raise refuse("probe_not_for_engine", text, field="engine.name", value=plan.engine)
    told = json.loads(ask("core.training.probe", plan, home))
    if plan.forecast is None:
        return plan
    mean = plan.counts.tokens / max(1, plan.counts.rows) if plan.counts else None
    return plan.model_copy(update={"forecast": measured(plan.forecast, told, steps=plan.steps, mean=mean)})


def ask(module: str, plan: Plan, home: Path, *more: str) -> str:
    """What a child process of core.training answers to the plan's job. Raises FactoryError with what it refuses."""
    return ask_child(module, plan.job_spec.model_dump_json(), str(home), *more)


def ask_child(module: str, question: str, *words: str) -> str:
    """What `python -m module WORDS` answers to a question on its stdin (core.training.answering), as text.

    Raises FactoryError with what it refuses, and RuntimeError with its last words when it crashes.
    """
    child = subprocess.run(
        [sys.executable, "-m", module, *words],
        input=question,
        cwd=CHECKOUT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if child.returncode == 2:
        raise FactoryError([Finding(**one) for one in json.loads(child.stdout)["findings"]])
    if child.returncode == -9:
        raise refuse("out_of_memory", "memory ran out in the trial; take a smaller batch or shorter rows.")
    if child.returncode:
        raise RuntimeError(f"{module} ended with {child.returncode}: {child.stderr[-4000:]}")
    return child.stdout


def ask_tokenizer(request: dict[str, Any], home: Path, model: str, template: str | None) -> dict[str, Any]:
    """The answer of core.training.preview to {do: inspect | preview, data, stage, ...}. Raises FactoryError."""
    if template is not None and template.endswith(".jinja"):
        template = str(Path(template).absolute())
    name = str(Path(model).absolute()) if Path(model).is_dir() else model
    request = {**request, "home": str(home), "model": {"name": name, "template": template}}
    # It stays in the user's folder, whose files the request may name; -P keeps Python from importing them.
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "core.training.preview"],
        input=json.dumps(request),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    if done.returncode not in (0, 2) or not done.stdout:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise refuse("preview_failed", f"The tokenizer process failed ({last[:200]}).", value=model)
    made: dict[str, Any] = json.loads(done.stdout)
    if "refused" in made:
        raise FactoryError([Finding(**{**one, "params": one["params"] or {}}) for one in made["refused"]])
    return made
