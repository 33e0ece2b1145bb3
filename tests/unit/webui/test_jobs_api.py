"""REST of jobs: what is wrong is told, fixes are applied, and one draft starts one run however often it is pressed."""

from __future__ import annotations

import os
import signal
import threading
import time
from uuid import uuid4

import pytest

from core.runs.folder import Run, list_runs
from core.runs.process import holders_of
from core.runs.states import read_status
from core.runs.storage import read_json
from tests.unit.webui.conftest import make_run

JOB = "# mine\nmodel: smollm2-135m\ndata: persona.jsonl\nstage: sft\ntrain:\n  batch_size: 1\n"


@pytest.fixture
def persona(home):
    """The persona sample in the data folder."""
    from webui.uploads import SAMPLES

    (home / "data").mkdir(parents=True)
    (home / "data" / "persona.jsonl").write_bytes((SAMPLES / "persona.jsonl").read_bytes())


@pytest.fixture
def no_start(monkeypatch):
    """Runs are written and queued, but nothing is trained: the line is held by somebody else."""
    from core.runs import control

    monkeypatch.setattr(control, "_spawn", lambda *_: os.getpid())


def test_a_job_is_checked_with_everything_that_is_wrong_at_once(board, persona):
    answer = board.client.post(
        "/api/jobs/check", json={"yaml": JOB + "  learning_rate: 7\n  epoch: 3\nx: 1\n"}
    ).json()
    assert not answer["ok"]
    assert {one["field"] for one in answer["findings"]} >= {"train.learning_rate", "train.epoch", "x"}
    right = board.client.post("/api/jobs/check", json={"yaml": JOB}).json()
    assert right["ok"] and right["job"]["data"]["path"] == "persona.jsonl"


@pytest.mark.parametrize("text", ["", "[]", "a: [", "x" * 300_000, "a: &b 1", "{" * 5000, "\x07", "model: 5"])
def test_what_is_no_job_is_told_and_never_a_fault(board, text):
    answer = board.client.post("/api/jobs/check", json={"yaml": text})
    assert answer.status_code == 200 and not answer.json()["ok"] and answer.json()["findings"]
    assert board.client.post("/api/jobs/submit", json={"yaml": text}).status_code in (413, 422)


def test_a_plan_is_quick_without_counting(board, persona):
    answer = board.client.post("/api/jobs/plan", json={"yaml": JOB}).json()
    assert answer["plan"]["counts"] is None and answer["plan"]["forecast"]["memory_total"] > 0
    assert answer["plan"]["forecast"]["lengths"] == "estimated"
    wrong = board.client.post("/api/jobs/plan", json={"yaml": JOB + "x: 1\n"}).json()
    assert wrong["plan"] is None and wrong["findings"]


def test_fixes_are_applied_to_the_text_and_comments_stay(board, persona):
    text = JOB + "  keep_best: true\n"
    answer = board.client.post("/api/jobs/fix", json={"yaml": text}).json()
    assert {"field": "data.eval", "value": 0.05, "code": "keep_best_without_eval"} in answer["changed"]
    assert (
        answer["yaml"].startswith("# mine")
        and board.client.post("/api/jobs/check", json={"yaml": answer["yaml"]}).json()["ok"]
    )
    assert board.client.post("/api/jobs/fix", json={"yaml": text, "codes": []}).json()["changed"] == []


def test_a_job_is_started_as_it_was_written(board, home, persona, no_start):
    answer = board.client.post("/api/jobs/submit", json={"yaml": JOB})
    assert answer.status_code == 201, answer.text
    run = Run(home / "runs" / answer.json()["run"]["id"])
    assert run.job_yaml.read_text() == JOB
    assert read_json(run.job_json)["data"]["path"] == str(home / "data" / "persona.jsonl")
    told = board.get(f"/api/runs/{run.id}/copy")["yaml"]
    assert (
        f"data: {home}/data/persona.jsonl" in told and "batch_size: 1" in told and "learning_rate" not in told
    )
    assert board.client.post("/api/jobs/check", json={"yaml": told}).json()["ok"]


def test_a_job_with_an_error_starts_nothing(board, home, persona):
    answer = board.client.post("/api/jobs/submit", json={"yaml": JOB + "  keep_best: true\n"})
    assert answer.status_code == 422 and answer.json()["error"]["todo"] == {"data.eval": 0.05}
    outside = board.client.post(
        "/api/jobs/submit", json={"yaml": JOB.replace("persona.jsonl", "/etc/passwd")}
    )
    assert (outside.status_code, outside.json()["error"]["code"]) == (403, "path_outside")
    assert list_runs(home) == []


def test_two_presses_of_one_draft_start_one_run(board, home, persona, no_start):
    draft, answers = str(uuid4()), []

    def press() -> None:
        answers.append(board.client.post("/api/jobs/submit", json={"yaml": JOB, "draft": draft}))

    threads = [threading.Thread(target=press) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.text for one in answers if one.status_code > 201] == []
    assert sorted(one.status_code for one in answers) == [200, 200, 200, 201]
    assert len({one.json()["run"]["id"] for one in answers}) == 1 and len(list_runs(home)) == 1


def test_a_draft_is_remembered_by_the_run_itself_after_a_restart(start, home, persona, no_start):
    draft = str(uuid4())
    first = start()
    id = first.client.post("/api/jobs/submit", json={"yaml": JOB, "draft": draft}).json()["run"]["id"]
    first.close()
    again = start().client.post("/api/jobs/submit", json={"yaml": JOB, "draft": draft})
    assert (again.status_code, again.json()["run"]["id"]) == (200, id)


def test_a_draft_that_was_started_takes_no_other_job_and_swallows_none(board, home, persona, no_start):
    draft = str(uuid4())
    send = lambda text: board.client.post("/api/jobs/submit", json={"yaml": text, "draft": draft})  # noqa: E731
    first = send(JOB)
    assert first.status_code == 201
    same = send("# a comment means nothing\n" + JOB + "\n")
    assert (same.status_code, same.json()["run"]["id"]) == (200, first.json()["run"]["id"])
    refused = send(JOB + "name: changed\n")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["field"]) == (409, "draft_taken", "draft")
    assert first.json()["run"]["id"] in error["message"] and "new draft" in error["message"]
    assert send("stage: [").status_code == 409
    changed = board.client.post(
        "/api/jobs/submit", json={"yaml": JOB + "name: changed\n", "draft": str(uuid4())}
    )
    assert changed.status_code == 201 and len(list((home / "runs").iterdir())) == 2


def test_a_broken_draft_id_is_refused(board, persona):
    assert board.client.post("/api/jobs/submit", json={"yaml": JOB, "draft": "../x"}).status_code == 422


def test_a_run_is_tried_again_with_a_change(board, home, persona, no_start):
    id = board.client.post("/api/jobs/submit", json={"yaml": JOB}).json()["run"]["id"]
    answer = board.client.post(f"/api/runs/{id}/retry", json={"changes": {"train.learning_rate": 1e-5}})
    assert answer.status_code == 201, answer.text
    other = Run(home / "runs" / answer.json()["run"]["id"])
    assert other.id != id and read_json(other.job_json)["train"]["learning_rate"] == 1e-5
    wrong = board.client.post(f"/api/runs/{id}/retry", json={"changes": {"train.nothing": 1}})
    assert wrong.status_code == 422 and wrong.json()["error"]["code"] == "unknown_field"


def test_a_run_of_the_command_line_with_a_file_outside_is_not_started_from_here(board, home):
    run, _ = make_run(home)  # its data is /somewhere/rows.jsonl
    answer = board.client.post(f"/api/runs/{run.id}/retry", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "path_outside")


def test_a_waiting_run_is_cancelled_and_moved(board, home, monkeypatch):
    """Real supervisors, and a stand-in that trains nothing: one run has the device, two wait."""
    from tests.faults.conftest import start as begin

    monkeypatch.setenv("FACTORY_GRACE", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    runs = [begin(home, "train", 60) for _ in range(3)]
    deadline = time.monotonic() + 120
    while read_status(runs[0]).state != "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        places = {row["id"]: row["place"] for row in board.get("/api/runs")["runs"]}
        assert [places[run.id] for run in runs] == [None, 1, 2]
        assert board.client.post(f"/api/runs/{runs[2].id}/front").json()["run"]["place"] == 1
        assert board.client.delete(f"/api/runs/{runs[1].id}").status_code == 409
        assert board.client.post(f"/api/runs/{runs[1].id}/cancel").status_code == 200
        assert board.client.post(f"/api/runs/{runs[0].id}/cancel").json()["error"]["code"] == "run_not_queued"
        machine = board.get("/api/machine")
        assert machine["slots"][0]["run"] == runs[0].id
    finally:
        for run in runs[::-1]:
            if not read_status(run).over:
                board.client.post(f"/api/runs/{run.id}/stop", json={"now": True})
        while any(holders_of(run.lock) for run in runs) and time.monotonic() < deadline + 30:
            time.sleep(0.05)
        for run in runs:
            for pid in holders_of(run.lock):
                os.kill(pid, signal.SIGKILL)
    assert {read_status(run).state for run in runs} == {"stopped"}


@pytest.mark.parametrize("forced", [False, True])
def test_a_home_on_a_network_takes_runs_and_files_only_when_the_operator_insisted(
    start, home, persona, no_start, monkeypatch, forced
):
    from core.runs import home as homes

    monkeypatch.setattr(homes, "file_system", lambda path: "nfs4")
    (stopped, _), client = make_run(home, "stopped"), start(force_home=forced).client
    answers = [
        client.post("/api/jobs/submit", json={"yaml": JOB}),
        client.post("/api/data", params={"name": "rows.jsonl"}, content=b'{"text": "a"}\n'),
        client.post(f"/api/runs/{stopped.id}/resume"),
    ]
    told = [one.json().get("error", {}).get("code") for one in answers]
    if forced:
        assert "home_on_network" not in told and [one.status_code for one in answers[:2]] == [201, 201], told
    else:
        assert told == ["home_on_network"] * 3 and "--force-home" in answers[0].text


def test_the_word_board_carries_the_insistence_to_the_server(home, monkeypatch, capsys):
    from core.cli import main
    from core.runs import home as homes

    seen = []
    monkeypatch.setattr(homes, "file_system", lambda path: "nfs4")
    monkeypatch.setattr(
        "webui.server.serve", lambda settings, socket, _: [seen.append(settings), socket.close()]
    )
    assert main(["--home", str(home), "board", "--port", "0"]) == 2
    assert "--force-home" in capsys.readouterr().err and not home.exists()
    assert main(["--home", str(home), "board", "--port", "0", "--force-home"]) == 0
    assert [settings.force_home for settings in seen] == [True]
