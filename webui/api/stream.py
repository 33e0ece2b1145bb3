"""The live routes: server-sent events of one run, of several, and of the list of runs.

`id:` of every message is RUN:EVENTS:LOG (several with commas), byte offsets into the run's own files. A browser sends
it back as Last-Event-ID, and the stream goes on there, after a reload, a sleep, or a restart of the server alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from core.runs.folder import ID, Run
from data.errors import FactoryError, refuse
from webui.api.here import Here, InHere, TheRun
from webui.api.hub import ALIVE, Cursor, Hub, listen
from webui.api.lines import size_of

router = APIRouter(tags=["stream"])
MOST_RUNS = 20
_CURSOR = re.compile(rf"({ID.pattern})(?::(\d{{1,18}}))?(?::(\d{{1,18}}))?")
LAST = Header(alias="last-event-id", max_length=4000, description="Where a broken stream had got to.")
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "Server-sent events: events, log, state, machine, gone, alive.",
    }
}


@router.get("/runs/{id}/stream", response_class=StreamingResponse, responses=STREAM)
async def stream_one(
    run: TheRun,
    request: Request,
    after: Annotated[
        int | None, Query(ge=0, description="Events from this byte on; else new ones only.")
    ] = None,
    log: Annotated[int | None, Query(ge=0, description="Log from this byte on; else new lines only.")] = None,
    last_event_id: Annotated[str | None, LAST] = None,
) -> StreamingResponse:
    """What happens in one run, as it happens."""
    return _stream(request, [run], {run.id: (after, log)}, last_event_id)


@router.get("/stream", response_class=StreamingResponse, responses=STREAM)
async def stream_several(
    here: InHere,
    request: Request,
    ids: Annotated[
        str | None,
        Query(
            max_length=4000,
            description="Runs with commas between, each ID or ID:EVENTS:LOG. Without: the list.",
        ),
    ] = None,
    last_event_id: Annotated[str | None, LAST] = None,
) -> StreamingResponse:
    """What happens in several runs over one connection; without ids, rows of the list as they change."""
    if ids is None:
        return StreamingResponse(_rows(here, request.app.state.hub), media_type="text/event-stream")
    asked = _cursors(ids)
    runs, gone = [], []
    for id in asked:
        try:
            runs.append(here.run(id))
        except FactoryError:
            if len(asked) == 1:
                raise
            gone.append(id)
    return _stream(request, runs, asked, last_event_id, gone)


def _stream(
    request: Request,
    runs: list[Run],
    asked: dict[str, tuple[int | None, int | None]],
    last: str | None,
    gone: Sequence[str] = (),
) -> StreamingResponse:
    hub: Hub = request.app.state.hub
    if last:
        known = {id: at for id, at in _cursors(last, strict=False).items() if id in asked}
        asked = {**asked, **known}
    cursors = {run.id: _clamped(run, *asked[run.id]) for run in runs}
    return StreamingResponse(
        listen(hub, runs, cursors, gone),
        media_type="text/event-stream",
        headers={"cache-control": "no-store"},
    )


def _clamped(run: Run, events: int | None, log: int | None) -> Cursor:
    """Offsets inside the files: a cursor beyond the end of a file that was replaced would wait for ever."""
    return Cursor(_at_most(size_of(run.events), events), _at_most(size_of(run.log), log))


def _at_most(size: int, offset: int | None) -> int:
    return size if offset is None else min(offset, size)


def _cursors(text: str, *, strict: bool = True) -> dict[str, tuple[int | None, int | None]]:
    found = {}
    for word in text.split(","):
        match = _CURSOR.fullmatch(word.strip())
        if match is None:
            if strict:
                text = (
                    f"{word[:80]!r} names no run to stream; write ID or ID:EVENTS:LOG, with commas between."
                )
                raise refuse("stream_ids_invalid", text, field="ids", value=word[:80])
            continue
        found[match[1]] = (int(match[2]) if match[2] else None, int(match[3]) if match[3] else None)
    if len(found) > MOST_RUNS:
        text = f"One stream carries {MOST_RUNS} runs at most, and these are {len(found)}."
        raise refuse("stream_too_many", text, field="ids", value=len(found))
    return found


async def _rows(here: Here, hub: Hub) -> AsyncIterator[bytes]:
    """The rows of the list, all at first, then those that changed, and the ids of those that are gone."""
    sent: dict[str, dict[str, object]] = {}
    yield b"retry: 1000\n\n"
    while not hub.closing:
        rows = await asyncio.to_thread(here.runs.rows)
        there = {str(row["id"]): row for row in rows}
        changed = [row for id, row in there.items() if sent.get(id) is not row and sent.get(id) != row]
        gone = [id for id in sent if id not in there]
        if changed or gone or not sent:
            yield b"event: runs\ndata: %s\n\n" % orjson.dumps({"runs": changed, "gone": gone})
        else:
            yield ALIVE
        sent = there
        await hub.pause_closing(1.0)
