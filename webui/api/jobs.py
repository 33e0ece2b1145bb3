"""Routes about jobs that are no runs yet: check, plan, fix, submit, and the job of a run to start again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import Field

from core.job.again import job_again
from core.job.edit import edited
from core.job.reading import MAX_BYTES
from core.runs.states import read_status
from core.runs.storage import read_json
from data.errors import refuse
from webui import jobs
from webui.api.answers import Checked, Copied, Fixed, Planned
from webui.api.body import Body
from webui.api.here import Here, InHere, Json, TheRun
from webui.api.run_answers import RunAnswer
from webui.api.runs import as_json
from webui.api.shown import row_of

router = APIRouter(tags=["jobs"])


class JobBody(Body):
    """A job."""

    yaml: str = Field(max_length=4 * MAX_BYTES)
    """The text of a job, YAML or JSON."""


class PlanBody(JobBody):
    """A job, and how closely to look."""

    quick: bool = True
    """Without counting rows and tokens by the model's tokenizer."""


class FixBody(JobBody):
    """A job, and which findings to settle."""

    codes: list[str] | None = Field(None, max_length=100)
    """Codes of findings; without, all errors and warnings that have a fix."""


class SubmitBody(JobBody):
    """A job to start."""

    draft: UUID | None = Field(None, strict=False)
    """The id of the draft it was written as: the same one never starts two runs, and never another job."""
    anyway: bool = False
    """Start although the forecast says that memory will not do."""


class RetryBody(Body):
    """What to change before a run is started anew."""

    changes: dict[str, Any] = Field({}, max_length=100)
    """Dotted fields with their new values."""
    draft: UUID | None = Field(None, strict=False)
    anyway: bool = False


@router.post("/jobs/check", response_model=Checked)
def check(here: InHere, body: JobBody) -> Response:
    """Everything that is wrong with a job, at once, in well under a second."""
    findings = jobs.findings_of(body.yaml, here.settings, here.machine())
    ok = not any(one.level == "error" for one in findings)
    return as_json(
        {"ok": ok, "findings": [one.to_json() for one in findings], "job": jobs.understood(body.yaml)}
    )


@router.post("/jobs/plan", response_model=Planned)
def plan(here: InHere, body: PlanBody) -> Response:
    """What a job would do: every setting, memory, steps, time, the command."""
    findings, made = jobs.plan_of(body.yaml, here.settings, here.machine(), quick=body.quick)
    told = [one.to_json() for one in findings]
    return as_json({"findings": told, "plan": made.model_dump(mode="json") if made else None})


@router.post("/jobs/fix", response_model=Fixed)
def fix(here: InHere, body: FixBody) -> Response:
    """The text with fixes applied, comments kept."""
    text, changed = jobs.fix(body.yaml, here.settings, here.machine(), body.codes)
    return as_json({"yaml": text, "changed": changed})


@router.post(
    "/jobs/submit",
    response_model=RunAnswer,
    status_code=201,
    responses={200: {"model": RunAnswer, "description": "This draft was started before; this is its run."}},
)
def submit(here: InHere, body: SubmitBody) -> Response:
    """Start a run. It waits for a free device and goes on whatever becomes of the board."""
    return _start(here, body.yaml, body.draft, body.anyway)


@router.get("/runs/{id}/copy", response_model=Copied)
def copy(run: TheRun) -> Json:
    """The job of a run as YAML, with what was set in it and absolute paths, to be changed and started anew."""
    return {"yaml": job_again(read_json(run.job_json), read_json(run.plan_json)), "run": run.id}


@router.post("/runs/{id}/retry", response_model=RunAnswer, status_code=201)
def retry(run: TheRun, here: InHere, body: RetryBody) -> Response:
    """Start the job of a run anew, with changes, as a run of its own."""
    text = job_again(read_json(run.job_json), read_json(run.plan_json))
    for field in body.changes:
        if not all(part.isidentifier() for part in field.split(".")):
            raise refuse(
                "bad_override",
                f"{field[:80]!r} is no dotted field of a job.",
                field="changes",
                value=field[:80],
            )
    return _start(here, edited(text, body.changes), body.draft, body.anyway)


def _start(here: Here, text: str, draft: UUID | None, anyway: bool) -> Response:
    run, new = jobs.submit(
        text, here.settings, here.machine(), draft=str(draft) if draft else None, anyway=anyway
    )
    here.runs.forget()
    answer = as_json({"run": row_of(run, read_status(run))})
    answer.status_code = 201 if new else 200
    return answer
