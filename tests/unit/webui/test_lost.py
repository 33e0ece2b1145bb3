"""An address without a page: a page for browsers, the answer itself for scripts."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from webui.head import Head
from webui.lost import Lost


@pytest.fixture(scope="module")
def client():
    """The middlewares in front of an app that has one page."""
    app = FastAPI()
    app.add_api_route("/here", lambda: JSONResponse({"here": True}))
    app.add_middleware(Lost)
    app.add_middleware(Head, first="<title>Factory</title>", last="")
    return TestClient(app, follow_redirects=False)


@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        ("/nothing", {"accept": "text/html,*/*"}, 404, "<title>Factory</title>"),
        ("/nothing", {"accept": "text/html"}, 404, "There is no such page"),
        ("/nothing", {"accept": "text/html", "accept-language": "zh-CN"}, 404, "没有这个页面"),
        ("/nothing", {"accept": "text/html", "cookie": "language=zh"}, 404, "没有这个页面"),
        (
            "/nothing",
            {"accept": "text/html", "cookie": "language=en", "accept-language": "zh"},
            404,
            "no such page",
        ),
        ("/<script>", {"accept": "text/html"}, 404, "/&lt;script&gt;."),
        ("/nothing", {"accept": "application/json"}, 404, '{"detail":"Not Found"}'),
        ("/api/nothing", {"accept": "text/html"}, 404, '{"detail":"Not Found"}'),
        ("/here", {"accept": "text/html"}, 200, '{"here":true}'),
        ("/runs", {"accept": "text/html"}, 307, ""),
        ("/runs/", {"accept": "text/html"}, 307, ""),
    ],
)
def test_a_browser_gets_a_page_and_a_script_the_answer(client, path, headers, status, words):
    answer = client.get(path, headers=headers)
    assert answer.status_code == status and words in answer.text
    assert answer.headers.get("location") == ("/" if status == 307 else None)
