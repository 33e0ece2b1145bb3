"""An answer of the chat's pool as an async stream: whatever ends it, the model is free afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from core.chat.pool import Pool
from core.chat.speakers import Speaker
from core.chat.worker import ENDS, Worker

Event = dict[str, Any]


class Answering:
    """One answer. `begin`, then read `events` to the end; cancelling either stops it at its next token."""

    def __init__(self, pool: Pool, speaker: Speaker, messages: Any, settings: dict[str, Any]) -> None:
        self._ask = (pool, speaker, messages, settings)
        self._loop = asyncio.get_running_loop()
        self._queue = asyncio.Queue[Event]()
        self._made: tuple[Worker, int] | None = None

    async def begin(self) -> None:
        """Load the model where it is not there, and ask. Raises FactoryError."""
        pool, speaker, messages, settings = self._ask
        begun = asyncio.ensure_future(
            asyncio.to_thread(pool.begin, speaker, messages, settings, self._listen)
        )
        try:
            self._made = await asyncio.shield(begun)
        except asyncio.CancelledError:  # the client went while the model was loading
            begun.add_done_callback(_stop_what_began)
            raise

    async def events(self) -> AsyncGenerator[Event, None]:
        """Every event as it comes; the last is one of ENDS."""
        over = False
        try:
            while not over:
                event = await self._queue.get()
                over = event["event"] in ENDS
                yield event
        finally:
            if not over:
                self.stop()

    def stop(self) -> None:
        """End it at its next token."""
        if self._made is not None:
            worker, number = self._made
            worker.stop(number)

    def _listen(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)


def _stop_what_began(begun: asyncio.Future[tuple[Worker, int]]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        worker, number = begun.result()
        worker.stop(number)
