"""The board's server: guard, then REST and live streams, then static files, then the pages.

Starts in a few CPU-seconds because nothing here imports a training library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI, HTTPException

from core.job.machine import factory_version
from core.runs.home import open_home
from webui.api import ROUTERS, refusals
from webui.api.chat import Running
from webui.api.here import Here
from webui.api.hub import Hub
from webui.guard import App, Guard
from webui.settings import Settings

GRACE = 2
"""Seconds that open requests get when the server ends; streams end by themselves at once."""
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "GRADIO_SSR_MODE": "False",
    "GRADIO_MCP_SERVER": "False",
    "GRADIO_SHARE": "False",
    "GRADIO_ALLOWED_PATHS": "",
}
"""What Gradio and its kin read from the environment: nothing is reported, nothing is switched on from outside."""


def build_api(settings: Settings) -> FastAPI:
    """REST and live streams, without pages and without the guard."""
    app = FastAPI(
        title="Factory",
        version=factory_version(),
        description="Everything the board does, for scripts. The same functions as the command line's.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the usual pages for it load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_life,
    )
    app.state.here = here = Here(settings)
    app.state.hub = Hub(here)
    app.state.chat = Running(settings.home)
    refusals.install(app)
    for router in ROUTERS:
        app.include_router(router, prefix="/api", responses=refusals.ANSWERS)
    app.add_api_route("/api/{rest:path}", _nothing, methods=METHODS, include_in_schema=False)
    return app


def build(settings: Settings) -> App:
    """The whole board as one ASGI application, the guard in front of all of it."""
    for name, value in QUIET.items():
        os.environ[name] = value
    os.environ.setdefault("GRADIO_TEMP_DIR", str(settings.home / "cache" / "board"))
    from webui.board import mount

    app = build_api(settings)
    return Guard(mount(app, settings.home), settings)


@contextlib.asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    # Requests of the list wait for the disk in threads; 40, the default, are taken by 40 slow clients.
    import anyio.to_thread

    anyio.to_thread.current_default_thread_limiter().total_tokens = 100
    yield
    app.state.hub.close()
    app.state.chat.pool.close()


def _nothing(rest: str) -> None:
    """What is under /api and no route of ours is nothing, and not a page of Gradio's."""
    raise HTTPException(404)


class Server(uvicorn.Server):
    """uvicorn that lets live streams end before it waits for them."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._started, self._ending = started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so only then."""
        await super().startup(sockets)
        if self.started:
            self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal asks the server to end."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_soon_threadsafe(self._ending)
        super().handle_exit(sig, frame)


def serve(settings: Settings, listening: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Serve on a bound socket until a signal comes. Raises FactoryError when the home cannot be used."""
    open_home(settings.home, force=settings.force_home)
    # What a job says without a folder means the home, in whatever folder the operator stood.
    os.chdir(settings.home)
    app = build(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # addresses may hold the token
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        limit_concurrency=2000,
    )
    hub = app.app.state.hub  # type: ignore[attr-defined]
    server = Server(config, started, hub.close)
    server.run(sockets=[listening])
