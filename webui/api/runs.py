"""Routes about runs that exist: list, show, name, stop, resume, delete, and what they left behind."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from pydantic import Field

from core.runs import control, trash, weights
from core.runs.about import write_about
from core.runs.folder import Run
from core.runs.states import read_status
from data.errors import refuse
from webui.api import lines, numbers
from webui.api.body import Body
from webui.api.detail import FILES, compared, detail
from webui.api.here import Here, InHere, Json, TheRun
from webui.api.run_answers import (
    Compared,
    Deleted,
    Ended,
    Events,
    LogPage,
    Metrics,
    PinAnswer,
    RunAnswer,
    RunDetail,
    RunRows,
)
from webui.api.shown import row_of

router = APIRouter(tags=["runs"])
LOG_MOST = 4 << 20


class AboutBody(Body):
    """What a person says about a run; what is left out stays."""

    title: str | None = None
    tags: list[str] | None = None
    note: str | None = None


class StopBody(Body):
    """How to stop."""

    now: bool = False
    """End at once, without saving."""


class ResumeBody(Body):
    """What may change before a run goes on."""

    changes: dict[str, Any] = Field({}, max_length=20)
    """Dotted fields with their new values, such as train.epochs."""


@router.get("/runs", response_model=RunRows)
def runs(here: InHere) -> Response:
    """All runs of the home, those of the command line too, newest first."""
    return as_json({"runs": here.runs.rows()})


@router.get("/runs/{id}", response_model=RunDetail)
def show(run: TheRun) -> Response:
    """Everything about one run but its events: job, plan, checkpoints, what can be downloaded."""
    return as_json(detail(run))


@router.patch("/runs/{id}", response_model=RunAnswer)
def describe(run: TheRun, body: AboutBody, here: InHere) -> Response:
    """Give a run a title, tags, a note."""
    write_about(run, title=body.title, tags=body.tags, note=body.note)
    return _answer(run, here)


@router.delete("/runs/{id}", response_model=Deleted)
def delete(run: TheRun, here: InHere) -> Json:
    """Move a run to the trash of the home. Refused while it lives."""
    thrown = trash.throw_away(run)
    here.runs.forget()
    return {"id": run.id, "bytes": thrown.bytes, "trash": str(thrown.path)}


@router.post("/runs/{id}/stop", response_model=Ended)
def stop(run: TheRun, here: InHere, body: StopBody | None = None) -> Json:
    """Ask a run to save and stop, or end it at once; cancels one that waits, and ends what a lost run left."""
    now = body is not None and body.now
    ended = 0
    if read_status(run).orphans:
        ended = control.end_orphans(run, 0.0 if now else 60.0)
    else:
        control.stop(run, now=now)
    here.runs.forget()
    return {"run": row_of(run, read_status(run)), "ended": ended}


@router.post("/runs/{id}/cancel", response_model=RunAnswer)
def cancel(run: TheRun, here: InHere) -> Response:
    """Take a waiting run out of the queue. Refused when it no longer waits."""
    if (status := read_status(run)).state != "queued":
        text = f"Run {run.id} is not waiting in the queue: it {status.words}."
        raise refuse("run_not_queued", text, value=run.id, state=status.state)
    control.stop(run)
    return _answer(run, here)


@router.put("/runs/{id}/checkpoints/{step}/pin", response_model=PinAnswer)
def pin(run: TheRun, step: Annotated[int, InPath(ge=0, description="The checkpoint's step.")]) -> Json:
    """Keep a checkpoint for good, whatever train.keep_checkpoints says. Twice is the same as once."""
    weights.pin(run, step)
    return {"step": step, "pinned": True}


@router.delete("/runs/{id}/checkpoints/{step}/pin", response_model=PinAnswer)
def unpin(run: TheRun, step: Annotated[int, InPath(ge=0, description="The checkpoint's step.")]) -> Json:
    """Let a pinned checkpoint go with the older ones."""
    weights.pin(run, step, pinned=False)
    return {"step": step, "pinned": False}


@router.post("/runs/{id}/resume", response_model=RunAnswer)
def resume(run: TheRun, here: InHere, body: ResumeBody | None = None) -> Response:
    """Go on from the newest whole checkpoint, as the next attempt; a finished run when it is made longer.

    What shaped the training so far stays: only its length and what it tells and keeps may change.
    """
    changes = body.changes if body else {}
    overrides = [f"{field}={json.dumps(value)}" for field, value in changes.items()]
    control.resume(run, overrides, force_home=here.settings.force_home)
    return _answer(run, here)


@router.post("/runs/{id}/front", response_model=RunAnswer)
def front(run: TheRun, here: InHere) -> Response:
    """Move a waiting run to the front of the machine's queue."""
    control.to_front(run)
    return _answer(run, here)


@router.get("/runs/{id}/events", response_model=Events)
def events(
    run: TheRun,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="Byte offset: `end` of the last event known.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    skip: Annotated[
        str | None, Query(max_length=200, description="Kinds to leave out, with commas between: metric.")
    ] = None,
) -> Response:
    """Events from a byte offset on; polling this is the same as the stream."""
    over = read_status(run).over  # asked before reading, or the last events could be missed
    found, reached = lines.read_events(run.events, after, 4 << 20, limit, skip=tuple((skip or "").split(",")))
    last = (
        reached >= lines.size_of(run.events) or reached == after
    )  # behind a torn last line nothing comes any more
    return as_json({"events": found, "next": reached, "over": over and last})


@router.get("/runs/{id}/metrics", response_model=Metrics)
def metrics(
    run: TheRun,
    points: Annotated[int, Query(ge=10, le=20_000, description="Most points of a series.")] = 2000,
    names: Annotated[
        str | None, Query(max_length=4000, description="Only these, with commas between.")
    ] = None,
) -> Response:
    """The numbers of a run as series, thinned to the lowest and highest of each stretch."""
    return as_json(numbers.series(run, points, names.split(",") if names else None))


@router.get("/runs/{id}/log", response_model=LogPage)
def log(
    run: TheRun,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="Lines in front of this byte.")] = None,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="Lines from this byte on.")] = None,
    tail: Annotated[int | None, Query(ge=1, le=20_000, description="The last so many lines.")] = None,
    bytes: Annotated[int, Query(ge=1, le=LOG_MOST, description="About how much of it.")] = 65_536,
) -> Response:
    """Whole lines of the log by byte offset, for files of any size, without escape sequences."""
    if sum(one is not None for one in (before, after, tail)) > 1:
        raise refuse("log_place_twice", "Ask for a log by one of before, after and tail.", field="before")
    if after is not None:
        return as_json(lines.log_after(run.log, after, bytes))
    if tail is not None:
        return as_json(lines.log_tail(run.log, tail))
    return as_json(lines.log_before(run.log, before, bytes))


@router.get(
    "/runs/{id}/files/{name}",
    response_class=FileResponse,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The file, as an attachment."}
    },
)
def download(run: TheRun, name: Literal["log", "job", "json", "plan", "events"]) -> FileResponse:
    """A file of the run, to keep."""
    path = run.path / FILES[name]
    if path.is_symlink() or not path.is_file():
        raise refuse("file_not_found", f"Run {run.id} has no {FILES[name]} (yet).", value=name)
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=f"{run.id}-{FILES[name]}",
        content_disposition_type="attachment",
    )


@router.get("/compare", response_model=Compared)
def compare(
    here: InHere, ids: Annotated[str, Query(max_length=4000, description="Runs, with commas between.")]
) -> Response:
    """Several runs beside each other: settings that differ, last numbers, answers to the same prompts."""
    names = list(dict.fromkeys(word.strip() for word in ids.split(",") if word.strip()))
    if not 1 <= len(names) <= 20:
        raise refuse(
            "compare_count", "Compare 2 to 20 runs; name them as ids=a,b.", field="ids", value=len(names)
        )
    return as_json(compared([here.run(name) for name in names]))


def as_json(value: Any) -> Response:
    """JSON at speed; values were made by us, so they are not checked against the answer's type again."""
    content = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(content, media_type="application/json")


def _answer(run: Run, here: Here) -> Response:
    here.runs.forget()
    return as_json({"run": row_of(run, read_status(run))})
