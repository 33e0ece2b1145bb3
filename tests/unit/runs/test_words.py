"""The words runs, logs, stop, resume and queue: what they say of runs that are there, and of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.cli import main
from core.cli.follow import clock, plain
from core.runs.folder import Run, create_run
from core.runs.locks import take
from core.runs.states import Book, new_record

JOB = {"name": "my fox", "stage": {"name": "sft"}, "hardware": {"devices": None}}


@pytest.fixture(autouse=True)
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of one's own."""
    monkeypatch.setenv("FACTORY_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def made(home: Path, *states: str, reason: str | None = None) -> Run:
    """A run that went through these states, without any process."""
    run = create_run(home, "", JOB, {"steps": 12, "job": JOB})
    book = Book(run, new_record(run, JOB, {"steps": 12}) | {"attempt": 1})
    for state in states:
        book.enter(state, reason if state == states[-1] else None, started=1_700_000_000.0)
    for step in (1, 2, 3):
        book.journal.append({"event": "metric", "step": step, "values": {"loss": 1.0}})
    book.record["step"] = 3
    book.save()
    book.journal.close()
    return run


def factory(*words: str) -> int:
    return main(list(words))


def test_an_empty_home_says_how_to_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert factory("--home", str(tmp_path), "runs") == 0
    assert capsys.readouterr().out == f"No runs yet in {tmp_path}. Start one: factory train job.yaml\n"
    assert factory("--home", str(tmp_path), "runs", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_runs_lists_the_newest_first_with_state_step_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path, "queued", "starting", "running", "failed", reason="The data is \x1b[31mempty.")
    second = made(tmp_path, "queued", "starting", "running")
    assert factory("--home", str(tmp_path), "runs") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["RUN", "STAGE", "STATE", "STEP", "STARTED", "NOTE"]
    assert lines[0].split()[:4] == [second.id, "sft", "lost", "3/12"]
    assert lines[1].split()[:4] == [first.id, "sft", "failed", "3/12"]
    assert lines[1].endswith("The data is empty.")


def test_runs_as_json_has_the_keys_scripts_rely_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, "queued", "starting", "running", "stopping", "stopped")
    assert factory("--home", str(tmp_path), "runs", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    wanted = {
        "id": run.id,
        "name": "my fox",
        "stage": "sft",
        "state": "stopped",
        "step": 3,
        "total_steps": 12,
        "started": 1_700_000_000.0,
        "path": str(run.path),
    }
    assert {key: row[key] for key in wanted} == wanted


def test_a_long_list_is_cut_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(22):
        made(tmp_path, "queued", "stopped")
    factory("--home", str(tmp_path), "runs")
    assert capsys.readouterr().out.splitlines()[-1] == "and 2 older ones: factory runs --all"
    factory("--home", str(tmp_path), "runs", "--all")
    assert len(capsys.readouterr().out.splitlines()) == 23


@pytest.mark.parametrize("words", [["logs"], ["logs", "-f"], ["stop"], ["resume"], ["queue", "front"]])
@pytest.mark.parametrize("id", ["nope", "../../etc"])
def test_an_unknown_run_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], id: str
) -> None:
    assert factory("--home", str(tmp_path), *words, id) == 2
    said = capsys.readouterr()
    assert (
        said.out == "" and said.err.startswith("error") and id in said.err and len(said.err.splitlines()) == 1
    )


def test_a_home_of_a_newer_version_is_refused_by_every_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home.json").write_text('{"version": 9}', encoding="utf-8")
    for words in (["runs"], ["logs", "x"], ["stop", "x"], ["resume", "x"], ["queue", "front", "x"]):
        assert factory("--home", str(tmp_path), *words) == 2
        assert "newer Factory" in capsys.readouterr().err


def test_logs_shows_the_end_without_what_drives_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, "queued", "stopped")
    assert factory("--home", str(tmp_path), "logs", run.id) == 0
    assert "has printed nothing yet: it was stopped" in capsys.readouterr().err
    run.log.write_bytes(b"one\n10%\r50%\r100%\n\x1b]8;;javascript:x\x07two\x1b[2J\n")
    assert factory("--home", str(tmp_path), "logs", run.id, "-n", "2") == 0
    assert capsys.readouterr().out == "100%\ntwo\n"


def test_logs_as_json_prints_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "queued", "stopped")
    assert factory("--home", str(tmp_path), "logs", run.id, "--json") == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in told] == ["state", "state", "metric", "metric", "metric"]


def test_resume_refuses_a_job_that_was_changed_and_names_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.runs.checkpoints import commit, job_hash

    run = made(tmp_path, "queued", "stopped")
    folder = run.checkpoints / "checkpoint-3"
    folder.mkdir()
    commit(folder, 3, job_hash(JOB))
    run.job_json.write_text(json.dumps(JOB | {"stage": {"name": "pretrain"}}), encoding="utf-8")
    assert factory("--home", str(tmp_path), "resume", run.id) == 2
    said = capsys.readouterr().err
    assert "has changed since checkpoint-3 was made (stage.name 'sft' -> 'pretrain')" in said


@pytest.mark.parametrize(
    ("content", "words"), [(None, "is gone: put it back to resume"), (b"other", "has changed since run")]
)
def test_resume_refuses_data_that_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    import hashlib

    data = tmp_path / "rows.jsonl"
    data.write_bytes(b"rows\n")
    run = made(tmp_path, "queued", "stopped")
    file = {"path": str(data), "bytes": 5, "sha256": hashlib.sha256(b"rows\n").hexdigest()}
    run.plan_json.write_text(json.dumps({"argv": [], "files": [file]}), encoding="utf-8")
    data.unlink()
    if content is not None:
        data.write_bytes(content)
    assert factory("--home", str(tmp_path), "resume", run.id) == 2
    assert words in capsys.readouterr().err


def test_a_run_that_has_succeeded_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "queued", "starting", "running", "succeeded")
    assert factory("--home", str(tmp_path), "resume", run.id) == 2
    assert "has succeeded: there is nothing to resume" in capsys.readouterr().err


def test_a_live_run_is_not_started_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "queued", "starting", "running")
    lock = take(run.lock)
    assert lock is not None
    try:
        assert factory("--home", str(tmp_path), "resume", run.id) == 2
        assert "is already running" in capsys.readouterr().err
    finally:
        os.close(lock)


def test_queue_shows_free_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert factory("--home", str(tmp_path), "queue") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["DEVICE", "RUN", "USER"],
        ["cpu0", "free", "-"],
    ]
    assert factory("--home", str(tmp_path), "queue", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"devices": [{"slot": "cpu0", "run": None, "user": None, "others": []}], "waiting": []}


def test_queue_resume_says_when_there_is_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert factory("--home", str(tmp_path), "queue", "resume") == 0
    assert capsys.readouterr().out == "No run lost its place in the queue.\n"


def test_text_of_models_and_libraries_cannot_drive_the_terminal() -> None:
    assert (
        plain("\x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b[31mred\x1b[0m a\tb\nc\x9b2Jd\x00")
        == "link red a\tb\nc2Jd"
    )
    assert plain(None) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (67, "1:07"), (3600, "1:00:00"), (10931.4, "3:02:11")]
)
def test_times_are_told_as_clocks_do(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_resume_tells_which_libraries_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.runs import control
    from core.runs.events import read_events

    run = made(tmp_path, "queued", "stopped")
    plan = {"argv": ["/no/such/python"], "versions": {"numpy": "0.0.1", "no-such-thing": None}}
    run.plan_json.write_text(json.dumps(plan), encoding="utf-8")
    monkeypatch.setattr(control, "_spawn", lambda run, key, lock, ticket: os.getpid())
    assert control.resume(run).attempt == 2
    (warning,) = [event for event in read_events(run.events)[0] if event.event == "warning"]
    assert warning.code == "versions_changed" and "numpy 0.0.1 -> " in warning.message


def test_an_empty_answer_and_a_note_are_told_as_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.cli.follow import Follower, closing_words
    from core.runs.events import Sample, Warn
    from core.runs.states import read_status

    run = made(tmp_path, "queued", "starting", "running", "succeeded")
    samples = [Sample(step=0, prompt="Who?", answer="", kind="before")]
    assert "  before  (nothing)\n" in closing_words(run, read_status(run), samples)
    follower = Follower(run)
    follower._hear(Warn(code="x", message="All is well.", level="note"))
    follower._hear(Warn(code="y", message="Mind this."))
    assert capsys.readouterr().out.splitlines() == ["note     All is well.", "warning  Mind this."]
