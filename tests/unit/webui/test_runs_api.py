"""REST of runs: what is there is shown, what is not there is refused in words, and files of any size are paged."""

from __future__ import annotations

import os
from typing import Any

import pytest

from core.runs import trash
from core.runs.locks import take
from core.runs.states import read_status
from tests.unit.webui.conftest import make_run, metric


def refusal(answer: Any) -> tuple[int, str]:
    """Status and code of a refusal, its form checked."""
    error = answer.json()["error"]
    assert {"code", "message", "findings"} <= error.keys() and error["message"].endswith((".", "`"))
    return answer.status_code, error["code"]


def test_a_home_without_runs_is_an_empty_list(board):
    assert board.get("/api/runs") == {"runs": []}


def test_the_list_says_what_a_run_is_and_how_far_it_got(board, home):
    run, journal = make_run(home, values={"loss": 0.25}, step=7)
    metric(journal, 7, loss=0.5)
    (row,) = board.get("/api/runs")["runs"]
    assert row["id"] == run.id and (row["step"], row["total_steps"], row["loss"]) == (7, 10, 0.25)
    assert (row["method"], row["model"], row["data"]) == ("lora", "smollm2-135m", "rows.jsonl")


def test_a_run_without_a_supervisor_is_lost_and_says_what_to_try(board, home):
    run, _ = make_run(home, "running")
    row = board.get(f"/api/runs/{run.id}")
    assert row["state"] == "lost" and row["card"]["command"]


def test_a_title_tags_and_a_note_stay_with_the_run(board, home):
    run, _ = make_run(home)
    board.client.patch(
        f"/api/runs/{run.id}", json={"title": " Erster <b>Lauf</b> 第一 ", "tags": ["a", "a", " "]}
    )
    board.client.patch(f"/api/runs/{run.id}", json={"note": "two\nlines"})
    row = board.get("/api/runs")["runs"][0]
    assert (row["title"], row["tags"], row["note"]) == ("Erster <b>Lauf</b> 第一", ["a"], "two\nlines")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"title": "x" * 101}, "text_too_long"),
        ({"title": "a\x1b[31m"}, "text_not_plain"),
        ({"title": "a\u202eb"}, "text_not_plain"),
        ({"tags": ["x"] * 1 + [f"t{n}" for n in range(30)]}, "too_many_tags"),
        ({"titel": "x"}, "bad_request"),
        ({"title": 5}, "bad_request"),
    ],
)
def test_words_about_a_run_that_will_not_do_are_refused(board, home, body, code):
    run, _ = make_run(home)
    assert refusal(board.client.patch(f"/api/runs/{run.id}", json=body)) == (422, code)


@pytest.mark.parametrize("id", ["nothing", "%2e%2e", "..%2f..%2fetc", "a%00b", "A", "x" * 65, "%0a"])
def test_a_run_that_is_not_there_is_refused(board, home, id):
    for path in ("", "/events", "/log", "/metrics", "/files/log", "/stream"):
        answer = board.client.get(f"/api/runs/{id}{path}")
        assert answer.status_code in (404, 422) and answer.json()["error"]["message"]


def test_half_an_id_means_no_run_here(board, home):
    run, _ = make_run(home)
    assert refusal(board.client.delete(f"/api/runs/{run.id[:-1]}")) == (404, "run_not_found")


def test_a_link_among_the_runs_is_no_run(board, home, tmp_path):
    run, _ = make_run(home)
    run.path.rename(tmp_path / "elsewhere")
    run.path.symlink_to(tmp_path / "elsewhere")
    assert refusal(board.client.get(f"/api/runs/{run.id}")) == (404, "run_not_found")


def test_the_detail_shows_the_job_and_what_was_set_in_it(board, home):
    run, _ = make_run(home)
    told = board.get(f"/api/runs/{run.id}")
    assert told["yaml"].startswith("# as written") and told["job"]["method"]["rank"] == 16
    assert (
        told["defaults_changed"]["method.rank"] == 16
        and "train.learning_rate" not in told["defaults_changed"]
    )
    assert told["follow_offset"] == run.events.stat().st_size and told["bytes"] > 0


def test_events_go_on_from_any_byte(board, home):
    run, journal = make_run(home)
    for step in range(1, 6):
        metric(journal, step, loss=1 / step)
    first = board.get(f"/api/runs/{run.id}/events", limit=2)
    assert [one["event"] for one in first["events"]] == ["state", "metric"] and not first["over"]
    rest = board.get(f"/api/runs/{run.id}/events", after=first["next"])
    assert [one["step"] for one in rest["events"]] == [2, 3, 4, 5] and rest["over"]
    inside = board.get(f"/api/runs/{run.id}/events", after=first["next"] + 3)
    assert [one["step"] for one in inside["events"]] == [3, 4, 5]
    assert board.get(f"/api/runs/{run.id}/events", after=10**15) == {
        "events": [],
        "next": rest["next"],
        "over": True,
    }


def test_a_torn_event_costs_itself_only(board, home):
    run, journal = make_run(home)
    with run.events.open("ab") as file:
        file.write(b'{"event": "metric", "st')
    metric(journal, 2, loss=1.0)
    kinds = [one["event"] for one in board.get(f"/api/runs/{run.id}/events")["events"]]
    assert kinds == ["state", "warning", "metric"]


def test_series_are_thinned_without_losing_a_peak(board, home):
    run, journal = make_run(home)
    with run.events.open("a") as file:
        for step in range(1, 5001):
            value = 99.0 if step == 3333 else 1.0 + step % 7 / 10
            file.write(f'{{"event": "metric", "step": {step}, "values": {{"loss": {value}}}}}\n')
    told = board.get(f"/api/runs/{run.id}/metrics", points=200)
    steps, values = told["series"]["loss"]
    assert len(steps) <= 202 and told["total"] == 5000 and max(values) == 99.0
    assert steps == sorted(steps) and (steps[0], steps[-1]) == (1, 5000)
    metric(journal, 5001, loss=2.0)
    assert board.get(f"/api/runs/{run.id}/metrics", points=200)["series"]["loss"][0][-1] == 5001


def test_a_resumed_attempt_replaces_the_steps_it_repeats(board, home):
    run, journal = make_run(home)
    for step in (1, 2, 3, 4):
        metric(journal, step, loss=1.0)
    board.get(f"/api/runs/{run.id}/metrics")
    for step in (3, 4, 5):
        metric(journal, step, loss=2.0)
    assert board.get(f"/api/runs/{run.id}/metrics")["series"]["loss"] == [[1, 2, 3, 4, 5], [1, 1, 2, 2, 2]]


def test_a_log_is_paged_backwards_and_forwards_without_losing_a_line(board, home):
    run, _ = make_run(home)
    lines = [f"line {number} — Zeile 行" for number in range(3000)]
    run.log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = board.get(f"/api/runs/{run.id}/log", tail=100)
    assert page["lines"] == lines[-100:] and page["to"] == page["size"]
    found = page["lines"]
    while page["from"]:
        page = board.get(f"/api/runs/{run.id}/log", before=page["from"], bytes=9000)
        found = page["lines"] + found
    assert found == lines
    found, at = [], 0
    while (page := board.get(f"/api/runs/{run.id}/log", after=at, bytes=7000))["lines"]:
        found, at = found + page["lines"], page["to"]
    assert found == lines


def test_a_log_of_ten_gigabytes_is_read_at_its_end(board, home):
    run, _ = make_run(home)
    with run.log.open("wb") as file:
        file.seek(10 * 2**30)
        file.write(b"\nlast but one\nlast\n")
    assert board.get(f"/api/runs/{run.id}/log", tail=2)["lines"] == ["last but one", "last"]
    assert board.get(f"/api/runs/{run.id}/log", after=10 * 2**30 + 1)["lines"] == ["last but one", "last"]
    run.log.unlink()


def test_a_log_line_loses_its_escapes_and_a_progress_bar_all_but_its_end(board, home):
    run, _ = make_run(home)
    run.log.write_bytes(
        b"\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\ \x1b[31mred\x1b[0m\n 1%\r 2%\rdone\r\n\xff\0<b>\n"
    )
    assert board.get(f"/api/runs/{run.id}/log", tail=10)["lines"] == ["click red", "done", "\ufffd<b>"]


def test_files_are_attachments_and_links_are_none(board, home, tmp_path):
    run, _ = make_run(home)
    answer = board.client.get(f"/api/runs/{run.id}/files/job")
    assert answer.text.startswith("# as written")
    assert answer.headers["content-disposition"] == f'attachment; filename="{run.id}-job.yaml"'
    run.log.symlink_to("/etc/passwd")
    assert refusal(board.client.get(f"/api/runs/{run.id}/files/log")) == (404, "file_not_found")
    assert refusal(board.client.get(f"/api/runs/{run.id}/files/lock"))[0] == 422


def test_a_deleted_run_is_in_the_trash_and_a_live_one_is_refused(board, home):
    run, _ = make_run(home)
    alive, _ = make_run(home, "running")
    lock = take(alive.lock)
    assert lock is not None
    assert refusal(board.client.delete(f"/api/runs/{alive.id}")) == (409, "run_active")
    os.close(lock)
    gone = board.client.delete(f"/api/runs/{run.id}").json()
    assert gone["bytes"] > 0 and (home / "trash" / "runs" / run.id / "job.yaml").is_file()
    assert [row["id"] for row in board.get("/api/runs")["runs"]] == [alive.id]
    assert refusal(board.client.get(f"/api/runs/{run.id}")) == (404, "run_not_found")


@pytest.mark.parametrize("word", ["stop", "cancel", "front"])
def test_what_cannot_be_done_to_a_finished_run_is_a_conflict(board, home, word):
    run, _ = make_run(home, "succeeded")
    assert refusal(board.client.post(f"/api/runs/{run.id}/{word}"))[0] == 409


def test_a_succeeded_run_is_not_resumed(board, home):
    run, _ = make_run(home, "succeeded")
    assert refusal(board.client.post(f"/api/runs/{run.id}/resume")) == (409, "run_succeeded")
    assert read_status(run).state == "succeeded"


def test_runs_are_compared_by_what_differs(board, home):
    one, first = make_run(home)
    other, second = make_run(home, job={**one_job(), "method": {"name": "lora", "rank": 4}})
    for journal, loss in ((first, 1.0), (second, 2.0)):
        metric(journal, 1, loss=loss)
        journal.append(
            {"event": "sample", "step": 1, "prompt": "Who?", "answer": f"I am {loss}", "kind": "after"}
        )
    told = board.get("/api/compare", ids=f"{one.id},{other.id}")
    assert told["differing"] == [{"key": "method.rank", "values": {one.id: 16, other.id: 4}}]
    assert told["final"]["loss"] == {one.id: 1.0, other.id: 2.0}
    assert told["samples"][0]["answers"][other.id]["last"]["answer"] == "I am 2.0"


def one_job() -> dict[str, Any]:
    """The job of a run."""
    from tests.unit.webui.conftest import JOB

    return JOB


def test_what_is_no_address_and_no_method_is_refused_in_the_same_form(board):
    assert refusal(board.client.get("/api/nothing")) == (404, "nothing_here")
    assert refusal(board.client.put("/api/runs", json={}))[0] in (404, 405)


def test_the_machine_recipes_and_schema_are_told(board):
    machine = board.get("/api/machine")
    assert machine["cpus"] >= 1 and " · " in machine["text"] and machine["load"]["memory_used"] > 0
    recipes = board.get("/api/recipes")["recipes"]
    assert recipes[0]["name"] == "quickstart" and all(one["about"] and one["yaml"] for one in recipes)
    assert "model" in board.get("/api/schema")["properties"]
    assert board.get("/api/features").keys() == {"chat", "export", "serve"}


def test_a_deleted_run_comes_back(board, home):
    run, _ = make_run(home)
    board.client.delete(f"/api/runs/{run.id}")
    assert [one.id for one in trash.thrown(home)] == [run.id]
    trash.put_back(home, run.id)
    assert board.get(f"/api/runs/{run.id}")["id"] == run.id
    board.client.delete(f"/api/runs/{run.id}")
    assert trash.empty(home) > 0 and trash.thrown(home) == []


def test_a_checkpoint_is_pinned_and_let_go_over_rest_and_by_the_command(board, home, capsys):
    from core.cli import main
    from core.runs import checkpoints

    run, _ = make_run(home)
    for step in (1, 2, 3):
        folder = run.checkpoints / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"w")
        checkpoints.commit(folder, step, "hash")
    place = f"/api/runs/{run.id}/checkpoints"

    def pinned() -> list[int]:
        return [one["step"] for one in board.get(f"/api/runs/{run.id}")["checkpoints"] if one["pinned"]]

    for _ in range(2):
        assert board.client.put(f"{place}/1/pin").json() == {"step": 1, "pinned": True}
    assert pinned() == [1] and checkpoints.retire(run, keep=1) == [2]
    assert board.client.delete(f"{place}/1/pin").json() == {"step": 1, "pinned": False}
    assert pinned() == [] and refusal(board.client.put(f"{place}/2/pin")) == (404, "checkpoint_not_found")
    words = ["--home", str(home), "runs"]
    assert main([*words, "pin", run.id, "1"]) == 0 and pinned() == [1]
    assert main([*words, "pin", run.id, "9"]) == 2 and "it has 1, 3" in capsys.readouterr().err
    assert main([*words, "unpin", run.id, "1"]) == 0 and checkpoints.retire(run, keep=1) == [1]
