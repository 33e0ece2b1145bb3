"""The guard alone, around an application that answers everything: who comes in, and what goes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.loops import run_async
from webui.guard import BODY_BYTES, HEADERS, Guard
from webui.settings import Settings

TOKEN = "test-token-0123456789"
HOST = (b"host", b"127.0.0.1:7860")
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Reads everything, answers 200 with what it read; with headers that the guard must replace."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    headers = [(b"access-control-allow-origin", b"*"), (b"server", b"x"), (b"x-frame-options", b"ALLOWALL")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


def ask(
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    path: str = "/api/runs",
    query: str = "",
    body: tuple[bytes, ...] = (),
    host: tuple[bytes, bytes] | None = HOST,
    bind: str = "127.0.0.1",
    **settings: Any,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request through the guard."""
    given = {"home": Path("/nowhere"), "token": TOKEN, "host": bind, **settings}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*([host] if host else []), *headers],
    }
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    run_async(Guard(_app, Settings(**given))(scope, receive, send))
    start = sent[0]
    content = b"".join(one.get("body", b"") for one in sent[1:])
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, content


def test_the_token_opens_as_bearer():
    assert ask(BEARER)[0] == 200
    assert ask((b"authorization", b"bearer " + TOKEN.encode()))[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer wrong"),
        (b"authorization", b"Basic " + TOKEN.encode()),
        (b"authorization", b"Bearer "),
        (b"authorization", b"Bearer " + TOKEN.encode() + b"x"),
        (b"authorization", "Bearer ü".encode()),
        (b"cookie", b"factory-7860=wrong"),
        (b"cookie", b"factory-7860=" + TOKEN.encode()),
        (b"cookie", b";;;=,\xff"),
    ],
)
def test_a_wrong_token_is_401(header):
    status, headers, body = ask(header)
    assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="factory"')
    assert TOKEN.encode() not in body


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address():
    status, headers, _ = ask(path="/run", query=f"id=a%26b&token={TOKEN}&x=")
    assert (status, headers["location"]) == (303, "/run?id=a%26b&x=")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert ask((b"cookie", cookie.partition(";")[0].encode()))[0] == 200


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example/x", "///evil.example"])
def test_the_swap_never_sends_the_browser_elsewhere(path):
    location = ask(path=path, query=f"token={TOKEN}")[1]["location"]
    assert location.startswith("/") and location[1:2] not in ("/", "\\")


def test_a_token_in_the_address_of_a_write_is_no_token():
    assert ask(method="POST", query=f"token={TOKEN}")[0] == 401


def test_health_needs_no_token_and_nothing_else_goes_without():
    assert ask(path="/api/health")[0] == 200
    assert ask(path="/api/health/")[0] == 401
    assert ask(path="/")[0] == 401


def test_without_a_token_set_everybody_on_this_machine_comes_in():
    assert ask(token=None)[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("localhost:7860", 200),
        ("LOCALHOST", 200),
        ("localhost.:7860", 200),
        ("[::1]:7860", 200),
        ("127.0.0.1:9999", 200),
        ("evil.example", 403),
        ("evil.example:7860", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:7860", 403),
        ("192.168.1.5:7860", 403),
        ("", 403),
    ],
)
def test_only_own_names_are_answered_to(host, status):
    assert ask(BEARER, host=(b"host", host.encode()))[0] == status


def test_an_exposed_board_answers_to_addresses_and_to_the_names_the_operator_gave():
    exposed = {"bind": "0.0.0.0", "names": ("board.example",)}
    assert ask(BEARER, host=(b"host", b"192.168.1.5:7860"), **exposed)[0] == 200
    assert ask(BEARER, host=(b"host", b"Board.Example"), **exposed)[0] == 200
    assert ask(BEARER, host=(b"host", b"evil.example"), **exposed)[0] == 403


def test_an_absent_or_doubled_host_is_400():
    assert ask(BEARER, host=None)[0] == 400
    assert ask(BEARER, (b"host", b"localhost:7860"))[0] == 400


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (b"http://127.0.0.1:7860", 200),
        (b"http://evil.example", 403),
        (b"null", 403),
        (b"http://127.0.0.1:9999", 403),
        (b"http://localhost:7860", 403),
        (b"http://127.0.0.1:7860.evil.example", 403),
        (b"", 403),
    ],
)
def test_only_the_boards_own_origin_may_ask(origin, status, method):
    assert ask(BEARER, (b"origin", origin), method=method)[0] == status


@pytest.mark.parametrize(
    ("site", "mode", "method", "status"),
    [
        (b"same-origin", b"cors", "POST", 200),
        (b"none", b"navigate", "GET", 200),
        (b"cross-site", b"cors", "POST", 403),
        (b"cross-site", b"no-cors", "GET", 403),
        (b"same-site", b"cors", "GET", 403),
        (b"cross-site", b"navigate", "POST", 403),
        (b"cross-site", b"navigate", "GET", 200),
    ],
)
def test_sec_fetch_site_of_another_site_is_refused_but_for_a_link(site, mode, method, status):
    headers = [(b"sec-fetch-site", site), (b"sec-fetch-mode", mode), (b"sec-fetch-dest", b"document")]
    assert ask(BEARER, *headers, method=method)[0] == status


def test_another_sites_frame_is_refused():
    headers = [
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-mode", b"navigate"),
        (b"sec-fetch-dest", b"iframe"),
    ]
    assert ask(BEARER, *headers)[0] == 403


def test_a_body_over_the_limit_is_413_by_its_header_and_by_its_bytes():
    length = (b"content-length", str(BODY_BYTES + 1).encode())
    assert ask(BEARER, length, method="POST")[0] == 413
    half = b"x" * (BODY_BYTES // 2 + 1)
    assert ask(BEARER, method="POST", body=(half, half))[0] == 413
    assert ask(BEARER, method="POST", body=(half,))[2] == str(len(half)).encode()


def test_uploads_have_the_operators_limit():
    assert ask(BEARER, method="POST", path="/api/data", body=(b"x" * 100,), upload_bytes=99)[0] == 413
    assert ask(BEARER, method="POST", path="/api/data", body=(b"x" * 99,), upload_bytes=99)[0] == 200


def test_gradios_own_upload_is_closed():
    assert ask(BEARER, method="POST", path="/gradio_api/upload")[0] == 403


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"path": "/"},
        {"host": (b"host", b"evil.example")},
        {"host": None},
        {"method": "POST", "body": (b"x" * (BODY_BYTES + 1),)},
        {"query": f"token={TOKEN}"},
    ],
)
def test_every_answer_has_every_header_and_none_that_opens_it_to_others(request_):
    for headers in ((BEARER,), ()):
        _, got, _ = ask(*headers, **request_)
        assert {name.decode(): value.decode() for name, value in HEADERS}.items() <= got.items()
        assert not [name for name in got if name.startswith("access-control") or name == "server"]


def test_a_person_gets_a_page_and_a_script_gets_json():
    accept = (b"accept", b"text/html,*/*")
    assert b"<form" in ask(accept, path="/")[2]
    assert ask(accept)[2].startswith(b'{"error"')
    hostile = ask(accept, path="/", host=(b"host", b"<script>alert(1)</script>"))
    assert hostile[0] == 403 and b"<script>" not in hostile[2]
