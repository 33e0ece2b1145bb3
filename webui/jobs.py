"""What can be asked about a job that comes from a browser or a script: is it right, what would it do, start it.

The New run page and REST call these, so that both judge alike. Texts, not files; every path is judged (webui/jail.py).
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from core.job.case import Case
from core.job.checks import check, insisted, refuse_errors
from core.job.counting import counted_plan, told_with
from core.job.fixes import all_findings, fixed
from core.job.load import parse_job, parse_leniently
from core.job.machine import Machine
from core.job.models import ModelPlace, locate
from core.job.plan import Plan, make_plan
from core.job.spec import JobSpec
from core.runs import control
from core.runs.folder import Run
from core.runs.home import open_home
from core.runs.locks import locked
from data.errors import FactoryError, Finding, refuse
from webui.jail import placed
from webui.settings import Settings

MOST_CHILDREN = 1
"""Children with a tokenizer at once: each takes a processor and half a GiB."""
_children = threading.BoundedSemaphore(MOST_CHILDREN)
PATIENCE = 120.0
"""Seconds to wait for a child's turn."""


def findings_of(text: str, settings: Settings, machine: Machine) -> list[Finding]:
    """Everything that is wrong with the text of a job, without a tokenizer: well under a second."""
    try:
        parse_leniently(text)
    except FactoryError as error:
        return list(error.findings)
    return all_findings(text, machine, settings.home, lambda job: placed(job, settings))


def understood(text: str) -> dict[str, Any] | None:
    """The job as far as it was understood, short forms made long; None for what is no job."""
    try:
        job, _ = parse_leniently(text)
    except FactoryError:
        return None
    return None if job is None else job.model_dump(mode="json")


def plan_of(
    text: str, settings: Settings, machine: Machine, *, quick: bool
) -> tuple[list[Finding], Plan | None]:
    """What the job would do; not `quick`: with its rows counted by the model's own tokenizer, in a child.

    Findings come with it; with an error among them there is no plan.
    """
    findings = findings_of(text, settings, machine)
    if any(one.level == "error" for one in insisted(findings)):
        return findings, None
    job = placed(parse_job(text), settings)
    if quick:
        lengths = Case(job, machine, settings.home, _model(job, settings)).lengths
        return findings, make_plan(job, settings.home, machine, lengths=lengths)
    with one_child():
        plan = counted_plan(job, settings.home, machine)
    return told_with(findings, plan), plan


def fix(
    text: str, settings: Settings, machine: Machine, codes: Collection[str] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The text with the fixes of its findings applied, and what was changed."""
    return fixed(text, lambda now: findings_of(now, settings, machine), codes)


def submit(
    text: str, settings: Settings, machine: Machine, *, draft: str | None = None, anyway: bool = False
) -> tuple[Run, bool]:
    """Start a run, and whether it is new: the same draft never starts two, however often and from wherever it comes.

    Raises FactoryError with everything that is wrong, and for a draft that was started with another job: its run is not
    what is asked for, and a second one not what a draft's id promises. `anyway` starts a job for which memory will
    hardly do.
    """
    open_home(settings.home, force=settings.force_home)
    if draft is None:
        return _start(text, settings, machine, None, anyway), True
    with locked(settings.home / "submit.lock"):  # across servers and threads alike
        known = control.run_of_draft(settings.home, draft)
        if known is None:
            return _start(text, settings, machine, draft, anyway), True
        if not _is_job_of(known, text):
            words = f"This draft was started as run {known.id} with another job; start the changed one as a new draft."
            raise refuse("draft_taken", words, field="draft", value=draft, run=known.id)
        return known, False


def _is_job_of(run: Run, text: str) -> bool:
    """Whether a text means the job that a run was started from; blanks and comments mean nothing."""
    try:
        written = run.job_yaml.read_text("utf-8")
    except FileNotFoundError:  # thrown away this very moment
        return True
    return text == written or (understood(text) or text) == understood(written)


def _start(text: str, settings: Settings, machine: Machine, draft: str | None, anyway: bool) -> Run:
    job: JobSpec = placed(parse_job(text), settings)
    findings = check(job, machine, settings.home)
    refuse_errors(insisted(findings) if anyway else findings)
    plan = make_plan(job, settings.home, machine).model_dump(mode="json")
    return control.submit(settings.home, text, plan["job"], plan, force_home=settings.force_home, draft=draft)


def _model(job: JobSpec, settings: Settings) -> ModelPlace:
    return locate(job.model.name, settings.home, revision=job.model.revision)


class one_child:
    """Hold the turn of a child with a tokenizer. Raises FactoryError when others take too long."""

    def __enter__(self) -> None:
        if not _children.acquire(timeout=PATIENCE):
            raise refuse(
                "busy",
                "Another count or preview has been running for two minutes; try again when it is done.",
            )

    def __exit__(self, *_: object) -> None:
        _children.release()
