"""One model for other programs: the API that OpenAI's clients speak, behind the board's guard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from core.chat import openai
from core.chat.pool import Pool
from core.chat.speakers import Speaker
from core.chat.worker import error_of
from data.errors import FactoryError, Finding
from webui.answering import Answering
from webui.guard import App, Guard
from webui.settings import Settings

GRACE = 2
Json = dict[str, Any]


class Backend(Protocol):
    """Who makes the answers."""

    async def whole(self, asked: openai.Asked, id: str, body: Json) -> Json:
        """A completion. Raises FactoryError."""

    def stream(self, asked: openai.Asked, id: str, body: Json) -> AsyncIterator[Json]:
        """Its chunks. Raises FactoryError, before or after the first."""


class Own:
    """Our own worker."""

    def __init__(self, pool: Pool, speaker: Speaker, name: str) -> None:
        self._pool, self._speaker, self._name = pool, speaker, name

    async def whole(self, asked: openai.Asked, id: str, body: Json) -> Json:
        """A completion. Raises FactoryError."""
        async for event in self._events(asked):
            if event["event"] == "done":
                return openai.completion(id, self._name, event)
        raise AssertionError("the events of an answer end with done or refused")

    async def stream(self, asked: openai.Asked, id: str, body: Json) -> AsyncIterator[Json]:
        """Its chunks. Raises FactoryError, before or after the first."""
        async with contextlib.aclosing(self._events(asked)) as events:
            async for event in events:
                if event["event"] == "start":
                    yield openai.chunk(id, self._name, {"role": "assistant", "content": ""})
                elif event["event"] == "text":
                    yield openai.chunk(id, self._name, {"content": event["text"]})
                else:
                    yield openai.chunk(id, self._name, {}, reason=event["reason"])
                    if asked.usage:
                        yield openai.last_chunk(id, self._name, event)

    async def _events(self, asked: openai.Asked) -> Any:
        answering = Answering(self._pool, self._speaker, asked.messages, asked.settings)
        await answering.begin()
        async with contextlib.aclosing(answering.events()) as events:
            async for event in events:
                if event["event"] == "refused":
                    raise error_of(event)
                yield event


def build(backend: Backend, name: str, settings: Settings) -> App:
    """The whole API as one ASGI application, the guard in front of it."""
    created = int(time.time())

    async def models(request: Request) -> Response:
        return JSONResponse(openai.models(name, created))

    async def model(request: Request) -> Response:
        if request.path_params["id"] != name:
            text = f"There is no model {request.path_params['id'][:80]!r} here; there is {name!r}."
            return JSONResponse(openai.error(404, text, "model_not_found", "model"), 404)
        return JSONResponse(openai.model(name, created))

    async def complete(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            asked = openai.read(body)
        except (ValueError, RecursionError):
            return JSONResponse(openai.error(400, "The body is no JSON.", "bad_json"), 400)
        except FactoryError as problem:
            return _refused(problem)
        id = openai.new_id()
        if asked.stream:
            return await _streamed(backend.stream(asked, id, body))
        return await _unless_gone(request, backend.whole(asked, id, body))

    async def health(request: Request) -> Response:
        return JSONResponse({"ok": True})

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/{id:path}", model),
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/api/health", health),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route, Exception: _fault})
    return Guard(app, settings)


async def _streamed(chunks: AsyncIterator[Json]) -> Response:
    """A stream, or a plain refusal where nothing was streamed yet."""
    try:
        first = await anext(chunks)
    except FactoryError as problem:
        return _refused(problem)

    async def lines() -> AsyncIterator[bytes]:
        try:
            yield _sse(first)
            async for one in chunks:
                yield _sse(one)
        except FactoryError as problem:
            yield _sse(openai.refusal(problem.findings)[1])
        else:
            yield b"data: [DONE]\n\n"
        finally:
            with contextlib.suppress(RuntimeError):
                await chunks.aclose()  # type: ignore[attr-defined]

    return StreamingResponse(lines(), media_type="text/event-stream")


async def _unless_gone(request: Request, work: Any) -> Response:
    """The answer of some work, which is cancelled when the client goes away before."""
    making = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({making, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            return Response(status_code=499)  # nobody reads it
        return JSONResponse(making.result())
    except FactoryError as problem:
        return _refused(problem)
    finally:
        making.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refused(problem: FactoryError) -> Response:
    status, body = openai.refusal(problem.findings)
    return JSONResponse(body, status)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = (
        "This address takes another method."
        if status == 405
        else f"{request.url.path[:100]} is not served here; /v1/models and /v1/chat/completions are."
    )
    return JSONResponse(openai.error(status, text, "wrong_method" if status == 405 else "not_served"), status)


async def _fault(request: Request, error: Exception) -> Response:
    finding = Finding(
        "internal_error", f"This is a fault of Factory ({type(error).__name__}); its terminal says more."
    )
    return _refused(FactoryError(finding))


def _sse(data: Json) -> bytes:
    return b"data: %s\n\n" % orjson.dumps(data)


def serve(app: App, listening: socket.socket, started: Callable[[], None]) -> None:
    """Serve on a bound socket until a signal comes."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        limit_concurrency=200,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                started()

    Server(config).run(sockets=[listening])
