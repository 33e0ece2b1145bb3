"""The door in front of everything, Gradio included: host, origin, token, size of what is sent, headers of what is said.

Pure ASGI, so that no route, mount or error page can be reached around it. Why each check is here: docs/board.md.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from webui.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

BODY_BYTES = 2 << 20
"""Largest body of a request that is no upload: a job may have 256 KiB of YAML, in JSON a few times that."""
UPLOADS = "/api/data"
"""The one path that takes files; its limit is the operator's."""
OPEN = ("/api/health",)
"""Said to everybody: nothing but that the server is up."""
CLOSED = tuple(
    "/gradio_api/upload /gradio_api/proxy= /gradio_api/runs /gradio_api/vibe- /gradio_api/undo-vibe- /gradio_api/dev/ "
    "/gradio_api/process_recording /gradio_api/deep_link /gradio_api/stream/ /gradio_api/mcp "
    "/monitoring /login /logout /openapi.json /docs /redoc /pwa_icon".split()
)
"""Doors of Gradio's that the board does not use. Files come through /api/data, counted and parsed in a child."""
SAFE = ("GET", "HEAD", "OPTIONS")

# 'unsafe-inline' and 'unsafe-eval': Gradio's pages hold inline scripts, and gr.HTML makes functions of its js_on_load.
# What stands between data and script is that data is only ever written as text; the policy keeps every request on
# this host, whatever a page is made to do.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
)
_REPLACED = {name for name, _ in HEADERS} | {b"server"}


class Guard:
    """ASGI middleware. Refusals: 400 (host), 401 (token), 403 (host, origin), 413 (size)."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.cookie = f"factory-{settings.port}"
        self.names = _own_names(settings)
        self._pass = _pass(settings.token) if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the board has no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refusal(scope)
        if refused is not None:
            await _answer(scope, send, *refused)
            return
        limit = self.settings.upload_bytes if scope["path"] == UPLOADS else BODY_BYTES
        body = _Body(scope, receive, send, limit)
        if body.declared > limit:
            await body.refuse()
            return
        await self.app(scope, body.receive, body.send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str, Headers] | None:
        headers = scope["headers"]
        host, problem = self._host(headers)
        if problem is not None:
            return problem
        if foreign := _origin_problem(scope, host):
            return 403, "origin_refused", foreign, []
        if scope["path"] in OPEN:
            return None
        if self.settings.token is not None:
            given = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)).get(
                "token"
            )
            if given is not None and scope["method"] in SAFE:
                return self._swap(scope, given)
            if not self._known(headers):
                return _NO_TOKEN
        if scope["path"].startswith(CLOSED):
            return (
                403,
                "door_closed",
                "The board does not use this address; files are uploaded to /api/data.",
                [],
            )
        return None

    def _host(self, headers: Headers) -> tuple[str, tuple[int, str, str, Headers] | None]:
        found = [value for name, value in headers if name == b"host"]
        if len(found) != 1:
            return "", (400, "host_refused", "A request must name its host once.", [])
        host = found[0].decode("latin-1").lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").rstrip(".")
        if self._is_ours(name):
            return host, None
        text = (
            f"The board does not answer to the name {name[:100]!r}; call it by its address, or start it with "
        )
        return host, (403, "host_refused", text + "--name for a name of its own.", [])

    def _is_ours(self, name: str) -> bool:
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address cannot be rebound by a foreign name server, as a name can.
        return address.is_loopback or not self.settings.local

    def _known(self, headers: Headers) -> bool:
        assert self.settings.token is not None and self._pass is not None
        for value in _all(headers, b"authorization"):
            kind, _, given = value.partition(" ")
            if kind.lower() == "bearer" and _same(given.strip(), self.settings.token):
                return True
        return any(_same(given, self._pass) for given in _cookies(headers, self.cookie))

    def _swap(self, scope: Scope, given: str) -> tuple[int, str, str, Headers]:
        """A token in the address becomes a cookie, and the address is shown without it."""
        if not _same(given, self.settings.token or ""):
            return _NO_TOKEN
        rest = [
            pair
            for pair in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            if pair[0] != "token"
        ]
        # One leading slash: //host and /\\host would be another host.
        path = "/" + scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0].lstrip(
            "/\\"
        )
        target = path + (f"?{urlencode(rest)}" if rest else "")
        cookie = f"{self.cookie}={self._pass}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000"
        return 303, "", "", [(b"location", target.encode("latin-1")), (b"set-cookie", cookie.encode())]


class _Body:
    """Counts what a request sends, and puts the headers on what it is answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._scope, self._receive, self._send, self._limit = scope, receive, send, limit
        lengths = _all(scope["headers"], b"content-length")
        self.declared = int(lengths[0]) if lengths and lengths[0].isdigit() else 0
        self._seen = 0
        self._over = self._started = self._refused = False

    async def receive(self) -> Message:
        """The next part of the body; a body over the limit ends here, as if the client had gone."""
        if self._over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._limit:
                self._over = True
                if not self._started:
                    await self.refuse()
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """Part of the answer; nothing once the request was refused for its size."""
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._started = True
            message = {**message, "headers": with_headers(message.get("headers", []), self._scope["path"])}
        await self._send(message)

    async def refuse(self) -> None:
        """Answer 413, once."""
        self._refused = True
        size = f"{self._limit / 2**20:,.0f} MiB"
        text = f"The request is larger than {size}, the most that is taken here."
        await _answer(self._scope, self._send, 413, "body_too_large", text, [(b"connection", b"close")])


def with_headers(given: Iterable[tuple[bytes, bytes]], path: str) -> Headers:
    """The headers of an answer with ours in place, and none that would let another origin read it."""
    kept = [
        (name, value)
        for name, value in given
        if name.lower() not in _REPLACED and not name.lower().startswith(b"access-control-")
    ]
    if path.startswith("/api/") and not any(name.lower() == b"cache-control" for name, _ in kept):
        kept.append((b"cache-control", b"no-store"))
    return [*kept, *HEADERS]


def _own_names(settings: Settings) -> frozenset[str]:
    names = {"localhost", *(name.lower().rstrip(".") for name in settings.names)}
    if not settings.local:
        names |= {socket.gethostname().lower(), settings.host.lower()}
    return frozenset(names)


def _origin_problem(scope: Scope, host: str) -> str | None:
    headers = scope["headers"]
    for origin in _all(headers, b"origin"):
        if origin.lower().partition("://")[2] != host:
            return f"A page of {origin[:100]} asked, and only the board's own pages may."
    for site in _all(headers, b"sec-fetch-site"):
        if site in ("same-origin", "none"):
            continue
        link = _all(headers, b"sec-fetch-mode") == ["navigate"] and _all(headers, b"sec-fetch-dest") == [
            "document"
        ]
        if not (link and scope["method"] in SAFE):
            return "Another site's page asked, and only the board's own pages may."
    return None


def _all(headers: Headers, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name == wanted]


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for text in _all(headers, b"cookie"):
        try:
            jar = SimpleCookie(text)
        except CookieError:
            continue
        if name in jar:
            found.append(jar[name].value)
    return found


def _pass(token: str) -> str:
    """What the cookie holds: it opens this board and does not tell the token."""
    return hmac.new(token.encode(), b"factory board cookie", hashlib.sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


_NO_TOKEN: tuple[int, str, str, Headers] = (
    401,
    "token_missing",
    "The board needs its token: open the address that was printed when it started, or send the token as "
    "`Authorization: Bearer`.",
    [(b"www-authenticate", b'Bearer realm="factory"')],
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Factory</title>
<style>
body{{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:34rem;padding:0 1rem}}
body{{color:#0f172a;background:#f8fafc}}
@media(prefers-color-scheme:dark){{body{{color:#e2e8f0;background:#0f172a}}}}
h1{{font-size:1.25rem}}input,button{{font:inherit;padding:.5rem .75rem;border:1px solid #64748b;border-radius:6px}}
input{{width:18rem;max-width:100%;box-sizing:border-box}}</style></head>
<body><main><h1>Factory</h1><p>{text}</p>{form}</main></body></html>"""
_FORM = (
    '<form method="get" action="/"><p><label>Token <input name="token" type="password" required autofocus></label> '
    '<button type="submit">Open</button></p></form>'
)


async def _answer(scope: Scope, send: Send, status: int, code: str, text: str, headers: Headers) -> None:
    """A refusal as a page for people who opened an address, else as JSON."""
    accepts = ",".join(_all(scope["headers"], b"accept"))
    if not text:
        body, kind = b"", b"text/plain"
    elif "text/html" in accepts and not scope["path"].startswith("/api/"):
        import html

        form = _FORM if status == 401 else ""
        body, kind = _PAGE.format(text=html.escape(text), form=form).encode(), b"text/html; charset=utf-8"
    else:
        error = {"code": code, "message": text, "findings": []}
        body, kind = json.dumps({"error": error}).encode(), b"application/json"
    sent = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": with_headers(sent + headers, scope["path"]),
        }
    )
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
