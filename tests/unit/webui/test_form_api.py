"""POST /jobs/form takes whatever a page or a script sends: answers, or refuses with the field's name, never a fault."""

from __future__ import annotations

import fcntl
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import FactoryError
from webui.form import by_id
from webui.form_text import fill, put, write
from webui.shapes import misshaped

JSON = {"content-type": "application/json"}
PARTS = [
    "stage",
    "method",
    "engine",
    "model",
    "data",
    "train",
    "evaluate",
    "hardware",
    "rewards",
    "export",
    "launcher",
]
KEYS = st.sampled_from(["name", "path", "sources", "columns", "target", "source", "kind", "rank"]) | st.text(
    max_size=3
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.sampled_from(["sft", "grpo", "lora", "length", "gguf", "~x", "~nouser/x", "a.jsonl"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("job", "widget", "shown"),
    [
        ("rewards: [[1]]", "rewards", [{"kind": None, "values": {}, "other": {"name": [1]}}]),
        ("rewards: [{name: [1]}]", "rewards", [{"kind": None, "values": {}, "other": {"name": [1]}}]),
        ("rewards: [{name: {}}]", "rewards", [{"kind": None, "values": {}, "other": {"name": {}}}]),
        ("export: [[1]]", "export", [{"kind": None, "values": {}, "other": {"name": [1]}}]),
        ("export: [{name: [1]}]", "export", [{"kind": None, "values": {}, "other": {"name": [1]}}]),
        ("export: [{name: {}}]", "export", [{"kind": None, "values": {}, "other": {"name": {}}}]),
        ("data: {sources: 1, path: [1]}", "data", []),
        ("data: {sources: 1, path: a.jsonl}", "data", ["a.jsonl"]),
        ("data: {sources: [1, {path: [1]}, {path: b.jsonl}]}", "data", ["b.jsonl"]),
    ],
)
def test_a_form_is_filled_from_any_shape_and_what_is_wrong_is_told(board, job, widget, shown):
    answer = board.client.post("/api/jobs/form", json={"yaml": job, "fill": True})
    assert answer.status_code == 200
    assert answer.json()["values"][widget] == shown and answer.json()["findings"]


@given(
    values=st.dictionaries(st.sampled_from(PARTS), PLAIN, max_size=4),
    part=st.sampled_from(PARTS),
    value=PLAIN,
)
def test_no_shape_of_a_job_is_a_fault_of_the_form(values, part, value):
    text = json.dumps(values)
    try:
        fill(text)
        fill(put(text, {f"{part}.name.inner": value, part: value}))
        write(text, {"data": ["a.jsonl", "b.jsonl"], "train.epochs": 2, "stage": "sft"})
    except FactoryError as refusal:
        assert refusal.findings


@given(id=st.sampled_from(sorted(by_id())), value=PLAIN)
def test_every_widget_takes_its_shape_or_is_named(id, value):
    findings = misshaped({id: value})
    assert all(one.field.startswith(f"changes.{id}") for one in findings)
    if not findings:
        kind = id.split(".")[1] if id.count(".") == 2 else None
        part = id.split(".")[0]
        fill(write(json.dumps({part: kind} if kind else {}), {id: value}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data.columns": [1]}, "changes.data.columns"),
        ({"rewards": "x"}, "changes.rewards"),
        ({"rewards": [1]}, "changes.rewards"),
        ({"rewards": [{"kind": [1]}]}, "changes.rewards"),
        ({"rewards": [{"kind": "length", "values": {"weight": [1]}}]}, "changes.rewards[0].weight"),
        ({"export": [{"kind": None, "other": 1}]}, "changes.export"),
        ({"method.lora.target": [1]}, "changes.method.lora.target"),
        ({"evaluate.prompts": {"a": 1}}, "changes.evaluate.prompts"),
        ({"hardware.devices": [[1]]}, "changes.hardware.devices"),
        ({"stage": ["sft"]}, "changes.stage"),
        ({"data": [1]}, "changes.data"),
        ({"train.epochs": {}}, "changes.train.epochs"),
    ],
)
def test_what_no_widget_can_show_is_refused_by_its_name(board, changes, field):
    answer = board.client.post("/api/jobs/form", json={"yaml": "", "changes": changes})
    assert answer.status_code == 422 and answer.json()["error"]["field"] == field


@pytest.mark.parametrize(
    ("way", "address", "body", "field"),
    [
        ("POST", "/api/jobs/form", r'{"yaml": "name: \ud800"}', "yaml"),
        ("POST", "/api/jobs/form", r'{"yaml": "", "changes": {"name": "\udfff"}}', "changes.name"),
        ("POST", "/api/jobs/form", r'{"yaml": "", "put": {"name": ["\udfff"]}}', "put.name[0]"),
        ("POST", "/api/jobs/check", r'{"yaml": "name: \ud800"}', "yaml"),
        ("POST", "/api/jobs/submit", r'{"yaml": "name: \ud800"}', "yaml"),
        ("PATCH", "/api/runs/{run}", r'{"title": "\ud800"}', "title"),
        ("PATCH", "/api/runs/{run}", r'{"tags": ["a", "\ud800"]}', "tags[1]"),
        ("POST", "/api/runs/{run}/resume", r'{"changes": {"name": "\ud800"}}', "changes.name"),
    ],
)
def test_half_a_character_is_refused_by_its_field(board, home, way, address, body, field):
    from tests.unit.webui.conftest import make_run

    address = address.replace("{run}", make_run(home)[0].id)
    answer = board.client.request(way, address, content=body, headers=JSON)
    assert answer.status_code == 422 and answer.json()["error"]["field"] == field


@pytest.mark.parametrize(
    ("way", "address", "body", "status", "words"),
    [
        ("POST", "/api/jobs/form", "{", 400, "The body is not JSON: "),
        ("POST", "/api/jobs/check", '{"yaml": }', 400, "The body is not JSON: expecting value."),
        (
            "GET",
            "/api/runs/A!b",
            None,
            422,
            "id 'A!b' cannot be one; take it as the lists of the board have it.",
        ),
        ("POST", "/api/runs/{succeeded}/stop", "{}", 409, "is not running: it has succeeded."),
        ("POST", "/api/runs/{stopped}/stop", "{}", 409, "is not running: it was stopped."),
        ("POST", "/api/runs/{failed}/cancel", "{}", 409, "is not waiting in the queue: it has failed."),
    ],
)
def test_a_refusal_is_a_sentence(board, home, way, address, body, status, words):
    from tests.unit.webui.conftest import make_run

    if "{" in address:
        state = address.split("{")[1].split("}")[0]
        address = address.replace(f"{{{state}}}", make_run(home, state)[0].id)
    answer = board.client.request(way, address, content=body, headers=JSON)
    assert answer.status_code == status and words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [(False, "stop it first, then delete it."), (True, "it was asked to stop; delete it when it has.")],
)
def test_a_run_that_was_asked_to_stop_is_not_to_be_stopped_first(board, home, asked, words):
    from tests.unit.webui.conftest import make_run

    run, _ = make_run(home, "queued")
    if asked:
        run.stop_file.touch()
    with run.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = board.client.delete(f"/api/runs/{run.id}")
    assert answer.status_code == 409 and answer.json()["error"]["message"].endswith(words)
