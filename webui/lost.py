"""What a browser gets at an address without a page: a page that says so under the board's own header, no bare JSON."""

from __future__ import annotations

import html
from http.cookies import CookieError, SimpleCookie
from typing import Any

from webui.head import Message, Receive, Send
from webui.words import LANGUAGES, words

MOVED = {"/runs": "/", "/board": "/"}
"""Addresses that people guess, and the page that is meant."""


class Lost:
    """ASGI middleware: a 404 for a browser becomes a page, and a guessed address leads to the page that is meant."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not _is_for_a_page(scope):
            await self.app(scope, receive, send)
        elif (meant := MOVED.get(scope["path"].rstrip("/"))) is not None:
            await _answer(send, 307, b"", [(b"location", meant.encode())])
        else:
            await self.app(scope, receive, _Instead(send, _page(scope)))


class _Instead:
    """Passes every answer but a 404, for which the page goes out."""

    def __init__(self, send: Send, page: bytes) -> None:
        self._send, self._page = send, page
        self._is_lost = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 404:
            self._is_lost = True
            await _answer(self._send, 404, self._page, [])
        elif not self._is_lost:
            await self._send(message)


async def _answer(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_for_a_page(scope: Message) -> bool:
    if scope["path"].startswith(("/api/", "/ui/", "/gradio_api/")):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _page(scope: Message) -> bytes:
    own = words(_language(scope))
    title, text, back = (
        html.escape(own[f"lost.{name}"].replace("{path}", scope["path"][:200]))
        for name in ("title", "text", "back")
    )
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'</head><body><main id="content" class="lost"><h1>{title}</h1><p>{text}</p>'
        f'<p><a class="btn primary" href="/">{back}</a></p></main></body></html>'
    ).encode("utf-8", "replace")


def _language(scope: Message) -> str:
    """The reader's language: by the cookie that the header's choice sets, else by the browser's own."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    try:
        chosen = SimpleCookie(headers.get(b"cookie", "")).get("language")
    except CookieError:
        chosen = None
    if chosen is not None and chosen.value in LANGUAGES:
        return chosen.value
    return "zh" if headers.get(b"accept-language", "").lower().startswith("zh") else "en"
