"""Run folders: made whole or not at all, found by id or part of it, never outside the home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs.folder import ID, create_run, find_run, home_folder, list_runs
from core.runs.storage import tail
from data.errors import FactoryError

JOB = {"name": "My Tiny Fox", "stage": {"name": "sft"}, "train": {"epochs": None}}


def _code(error: pytest.ExceptionInfo[FactoryError]) -> str:
    return error.value.findings[0].code


def test_a_new_run_holds_what_was_asked_and_its_id_is_a_safe_name(tmp_path: Path) -> None:
    run = create_run(tmp_path, "stage: sft  # mine\n", JOB, {"argv": ["true"]})
    assert run.job_yaml.read_text(encoding="utf-8") == "stage: sft  # mine\n"
    assert json.loads(run.job_json.read_text(encoding="utf-8")) == JOB
    assert json.loads(run.attempt_json.read_text(encoding="utf-8")) == {"attempt": 1, "resume": None}
    assert ID.fullmatch(run.id) and "my-tiny-fox" in run.id
    assert run.home == tmp_path and list_runs(tmp_path) == [run]


def test_runs_made_in_the_same_second_get_ids_of_their_own(tmp_path: Path) -> None:
    runs = [create_run(tmp_path, "", JOB, {}) for _ in range(20)]
    assert len({run.id for run in runs}) == 20 and len(list_runs(tmp_path)) == 20


def test_a_run_is_found_by_its_id_its_beginning_or_its_last_letters(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", JOB, {})
    assert (
        find_run(tmp_path, run.id) == find_run(tmp_path, run.id[:8]) == find_run(tmp_path, run.id[-4:]) == run
    )


def test_what_fits_several_runs_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        create_run(tmp_path, "", {"name": "twin"}, {})
    with pytest.raises(FactoryError) as error:
        find_run(tmp_path, list_runs(tmp_path)[0].id[:2])
    assert _code(error) == "run_ambiguous"


@pytest.mark.parametrize(
    "wanted",
    ["../x", "/etc", "a/b", "", ".", "..", "A", "x\n", "a" * 65, "a\0b", "%2e%2e/x", "C:\\x", "\ud800"],
)
def test_an_id_that_tries_to_leave_the_home_is_refused(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(FactoryError) as error:
        find_run(tmp_path, wanted)
    assert _code(error) == "run_id_invalid"


@given(st.text(max_size=70))
def test_find_run_never_returns_a_folder_outside(
    tmp_path_factory: pytest.TempPathFactory, wanted: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    with pytest.raises(FactoryError):
        find_run(home, wanted)


def test_a_run_of_the_other_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTORY_HOME", str(tmp_path / "b"))
    run = create_run(home_folder(), "", JOB, {})
    with pytest.raises(FactoryError, match=f"add --home {tmp_path / 'b'}"):
        find_run(home_folder(tmp_path / "a"), run.id)


def test_an_unknown_run_is_told_apart_from_an_empty_home(tmp_path: Path) -> None:
    with pytest.raises(FactoryError, match="holds no runs yet"):
        find_run(tmp_path, "zzzz")
    create_run(tmp_path, "", JOB, {})
    with pytest.raises(FactoryError, match="`factory runs` lists them"):
        find_run(tmp_path, "zzzz")


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        create_run(tmp_path, "", JOB, {"x": float("nan")})
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_tail_of_a_log_is_its_last_lines_whatever_its_size(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, 2)
        file.write(b"\nfirst\nsecond \xff\nthird")
    assert tail(log, 2) == "second \ufffd\nthird"
    assert tail(log, 0) == ""
    log.write_bytes(b"")
    assert tail(log, 5) == ""


def test_a_home_that_is_a_file_is_told_and_not_taken_for_an_empty_one(tmp_path):
    home = tmp_path / "home"
    home.write_text("not a folder", encoding="utf-8")
    with pytest.raises(FactoryError) as caught:
        list_runs(home)
    (finding,) = caught.value.findings
    assert finding.code == "not_a_folder" and str(home) in finding.message


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Übung Nr. 3", "ubung-nr-3"),
        ("狐狸", "sft"),
        ("狐狸 fox", "fox"),
        (None, "sft"),
        ("My Fox", "my-fox"),
    ],
)
def test_an_id_is_ascii_whatever_the_name(tmp_path: Path, name: str | None, label: str) -> None:
    run = create_run(tmp_path, "", {"name": name, "stage": {"name": "sft"}}, {})
    assert run.id.split("-", 2)[2].rpartition("-")[0] == label and ID.fullmatch(run.id)
