"""Resuming with other settings: what may change is told, what may not is refused, and nothing ends without a step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.cli.follow import closing_words
from core.job.later import LATER, changes, fixed, total_steps
from core.job.load import parse_job
from core.job.schema import all_fields
from core.runs import checkpoints, control
from core.runs.events import read_events
from core.runs.folder import Run
from core.runs.states import read_status
from core.runs.storage import read_json, write_json
from data.errors import FactoryError
from tests.unit.runs.test_words import factory, made


@pytest.fixture(autouse=True)
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of one's own."""
    monkeypatch.setenv("FACTORY_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def finished(home: Path, *states: str, steps: int = 4) -> Run:
    """A run of four steps whose last checkpoint is there."""
    run = made(home, "queued", "starting", "running", *(states or ("succeeded",)))
    asked = parse_job("model: m\ndata: rows.jsonl\nstage: sft\n", ["train.epochs=1"])
    write_json(run.job_json, asked.model_dump(mode="json"))
    write_json(run.plan_json, {"argv": ["/no/such/python"], "job": read_json(run.job_json)})
    write_json(run.state_json, {**read_json(run.state_json), "total_steps": 4})
    folder = run.checkpoints / f"checkpoint-{steps}"
    folder.mkdir(parents=True)
    checkpoints.commit(folder, steps, checkpoints.job_hash(read_json(run.job_json)))
    return run


def test_a_finished_run_is_trained_longer_and_the_change_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path)
    monkeypatch.setattr(control, "_spawn", lambda run, key, lock, ticket: os.getpid())
    words = ["--home", str(tmp_path), "resume", run.id, "--detach", "-o", "train.epochs=2"]
    assert factory(*words, "-o", "train.save_steps=3") == 0
    assert capsys.readouterr().out == f"{run.id}\n"
    assert read_json(run.attempt_json) == {"attempt": 2, "resume": "checkpoints/checkpoint-4"}
    train = read_json(run.job_json)["train"]
    assert (train["epochs"], train["save_steps"]) == (2.0, 3)
    (warning,) = [event for event in read_events(run.events)[0] if event.event == "warning"]
    assert (warning.code, warning.level) == ("settings_changed", "note")
    assert warning.message == "Not as the run began: train.epochs 1 -> 2, train.save_steps empty -> 3."


@pytest.mark.parametrize(
    ("overrides", "code", "words"),
    [
        ([], "run_succeeded", "-o train.epochs=2` trains it longer"),
        (
            ["train.logging_steps=1"],
            "nothing_left",
            "has done 4 steps, and with train.logging_steps empty -> 1",
        ),
        (["train.epochs=0.5"], "nothing_left", "it has 2: nothing is left to train; make it longer"),
        (["train.max_steps=4"], "nothing_left", "it has 4: nothing is left to train"),
        (
            ["train.learning_rate=1e-3"],
            "setting_fixed",
            "rests on train.learning_rate, which may not change any more",
        ),
        (
            ["stage.max_length=64", "data.turns=drop"],
            "setting_fixed",
            "-o stage.max_length=64 -o data.turns=drop`.",
        ),
        (["train.epoch=2"], "unknown_field", "train.epochs"),
    ],
)
def test_what_cannot_be_changed_on_resume_is_refused_in_words(
    tmp_path: Path, overrides: list[str], code: str, words: str
) -> None:
    run = finished(tmp_path)
    files = (run.job_json, run.state_json, run.events, run.attempt_json)
    before = [path.read_bytes() for path in files]
    with pytest.raises(FactoryError) as refused:
        control.resume(run, overrides)
    assert refused.value.findings[0].code == code and words in str(refused.value)
    assert [path.read_bytes() for path in files] == before


def test_a_finished_run_without_checkpoints_goes_on_as_a_new_run_from_its_model(tmp_path: Path) -> None:
    run = finished(tmp_path)
    checkpoints.discard(run.checkpoints / "checkpoint-4")
    with pytest.raises(FactoryError, match=f"-o model.adapter={run.model}"):
        control.resume(run, ["train.epochs=2"])


def test_settings_changed_in_job_json_by_hand_are_told_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path, "stopped", steps=2)
    monkeypatch.setattr(control, "_spawn", lambda run, key, lock, ticket: os.getpid())
    job = read_json(run.job_json)
    write_json(run.job_json, {**job, "train": {**job["train"], "seed": 1}})
    with pytest.raises(FactoryError, match=r"checkpoint-2 was made \(train.seed 42 -> 1\)"):
        control.resume(run)
    write_json(run.job_json, {**job, "train": {**job["train"], "epochs": 3.0}})
    assert control.resume(run).attempt == 2
    (warning,) = [event for event in read_events(run.events)[0] if event.event == "warning"]
    assert warning.message == "Not as the run began: train.epochs 1 -> 3."


def test_the_best_weights_are_told_with_their_step(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.model.mkdir()
    write_json(run.model / "COMPLETE.json", {"step": 3, "best_eval_loss": 1.25, "files": {}})
    said = closing_words(run, read_status(run), [])
    assert f"The model lies in {run.model}: the best weights, of step 3 (eval_loss 1.2500)" in said
    write_json(run.model / "COMPLETE.json", {"step": 4, "files": {}})
    assert "of step" not in closing_words(run, read_status(run), [])


def test_every_setting_that_may_change_is_a_field_of_a_job() -> None:
    assert set(LATER) <= set(all_fields())


def test_the_fingerprint_of_a_job_is_blind_to_what_may_change_and_to_nothing_else() -> None:
    job = parse_job("model: m\ndata: rows.jsonl\nstage: sft\n").model_dump(mode="json")
    print_of = checkpoints.job_hash(job)
    longer = parse_job("model: m\ndata: rows.jsonl\nstage: sft\nname: x\ntrain: {epochs: 9, save_steps: 1}\n")
    assert checkpoints.job_hash(longer.model_dump(mode="json")) == print_of
    faster = parse_job("model: m\ndata: rows.jsonl\nstage: sft\ntrain: {learning_rate: 0.1}\n")
    assert checkpoints.job_hash(faster.model_dump(mode="json")) != print_of
    assert {"evaluate", "train.keep_checkpoints"} <= set(changes(fixed(job), job)) <= {"evaluate", *LATER}


@pytest.mark.parametrize(
    ("train", "was", "total", "expected"),
    [
        ({"max_steps": 9}, {"epochs": 1.0}, 4, 9),
        ({"epochs": 2.0}, {"epochs": 1.0}, 4, 8),
        ({"epochs": 1.3}, {"epochs": 1.0}, 4, 6),
        ({"epochs": 2.0}, {"epochs": 1.0}, None, None),
        ({"epochs": 2.0}, {"epochs": 1.0, "max_steps": 4}, 4, None),
    ],
)
def test_the_new_length_is_counted_from_the_old_one(train, was, total, expected) -> None:
    assert total_steps({"train": train}, {"train": was}, total) == expected


@pytest.mark.parametrize(
    ("override", "said"),
    [("stage.name=dpo", "stage.name"), ("stage=dpo", "stage.name"), ("method=full", "method.name")],
)
def test_another_stage_or_method_on_resume_is_refused_as_that(
    tmp_path: Path, override: str, said: str
) -> None:
    run = finished(tmp_path / "home")
    with pytest.raises(FactoryError) as refused:
        control.resume(run, [override])
    (finding,) = refused.value.findings
    assert finding.code == "setting_fixed" and f"rests on {said}, which may not change" in finding.message
