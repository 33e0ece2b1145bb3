"""Our part of every page's head, put into the page itself: Gradio would add it by script, after the first paint.

Colours and language must be known before anything is drawn, and Gradio's own script asks for the language only once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Head:
    """ASGI middleware that writes a text at the beginning and one at the end of the head of every HTML page."""

    def __init__(self, app: Any, first: str, last: str) -> None:
        self.app = app
        self.texts = {b"<head>": b"<head>" + first.encode(), b"</head>": last.encode() + b"</head>"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith(("/api/", "/ui/")):
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _Writer(self.texts, send))


class _Writer:
    """Holds an HTML answer back until it is whole; everything else passes at once."""

    def __init__(self, texts: Mapping[bytes, bytes], send: Send) -> None:
        self._texts, self._send = texts, send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_html(message):
            self._start = message
        elif self._start is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body = self._body
        for mark, text in self._texts.items():
            body = body.replace(mark, text, 1)
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _is_html(start: Message) -> bool:
    kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
    return any(value.startswith(b"text/html") for value in kinds)
