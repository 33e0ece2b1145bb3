"""The OpenAPI is whole and true: every route typed, and nothing that its schema allows, or does not, makes a 5xx."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.unit.webui.conftest import TOKEN
from webui.guard import Guard
from webui.server import build_api
from webui.settings import Settings

HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "localhost"}
ENDLESS = ("/stream", "/chat/answer", "/chat/load")
"""Streams do not end, and answers of a model take minutes; both have tests of their own."""
EXAMPLES = 12
"""A route; a hundred more in the slow tier."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The API on a home with a run and a data file, so that some questions have answers."""
    from tests.unit.webui.conftest import make_run, metric

    home = tmp_path_factory.mktemp("openapi") / "home"
    run, journal = make_run(home, "succeeded")
    metric(journal, 1, loss=1.0)
    (home / "data").mkdir()
    (home / "data" / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    return build_api(Settings(home=home, token=TOKEN, upload_bytes=1 << 20))


@pytest.fixture(scope="module")
def guarded(app: Any) -> Any:
    """The same behind the guard."""
    return Guard(app, app.state.here.settings)


@pytest.fixture
def api_schema(app: Any, guarded: Any) -> Any:
    """What schemathesis reads; requests go through the guard."""
    made = schemathesis.openapi.from_dict(json.loads(json.dumps(app.openapi())))
    made.app = guarded
    return made


def test_every_route_has_typed_answers_words_and_all_refusals(app):
    for path, methods in app.openapi()["paths"].items():
        for method, told in methods.items():
            assert told.get("description"), f"{method} {path} has no words"
            good = [answer for status, answer in told["responses"].items() if status.startswith("2")]
            assert good and all(answer.get("content") for answer in good), f"{method} {path}"
            refusals = {
                status: answer for status, answer in told["responses"].items() if status.startswith("4")
            }
            assert {"400", "401", "403", "404", "409", "413", "422"} <= set(refusals)
            for status, answer in refusals.items():
                (content,) = answer["content"].values()
                assert content["schema"]["$ref"].endswith("/ErrorAnswer"), f"{method} {path} {status}"


def test_the_openapi_is_given_out_behind_the_token(board):
    assert board.get("/api/openapi.json")["info"]["title"] == "Factory"


def operations() -> list[tuple[str, str]]:
    """Every (method, path) of the API, so that a failure names its route."""
    spec = build_api(Settings(home=Path("/nowhere"))).openapi()["paths"]
    return [
        (method, path) for path, methods in spec.items() for method in methods if not path.endswith(ENDLESS)
    ]


@pytest.mark.parametrize(("method", "path"), operations())
def test_nothing_makes_a_server_error(api_schema, request, monkeypatch, tmp_path, method, path):
    """Whatever is sent, with the token: an answer of its schema, or a refusal."""
    monkeypatch.setenv("FACTORY_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setattr("webui.jobs.counted_plan", _no_child)
    monkeypatch.setattr("webui.api.data.ask_tokenizer", _no_child)
    operation = api_schema[path][method]
    count = 100 if request.config.getoption("--slow") else EXAMPLES

    @_given(operation, count)
    def ask(case: Any) -> None:
        answer = case.call(headers=HEADERS)
        case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])

    ask()


def _no_child(*_: Any, **__: Any) -> Any:
    """Children with a tokenizer take ten seconds each; that they answer is tested where they are."""
    from data.errors import refuse

    raise refuse("busy", "Not in this test.")


def _given(operation: Any, count: int) -> Any:
    from hypothesis import given

    chosen = settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: chosen(given(case=operation.as_strategy())(test))
