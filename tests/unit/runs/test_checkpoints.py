"""Checkpoints: whole or none, the newest by step, retention by our rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.runs import checkpoints
from core.runs.folder import Run, create_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path, "", {"name": "t"}, {})


def _save(run: Run, step: int, *, commit: bool = True) -> Path:
    folder = run.checkpoints / f"checkpoint-{step}"
    (folder / "inner").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w" * 100)
    (folder / "inner" / "rng.pth").write_bytes(b"r" * 10)
    if commit:
        assert checkpoints.commit(folder, step, "abc", {"eval_loss": 1.0}) == 110
    return folder


def test_a_folder_counts_only_with_its_marker_and_every_file_at_its_size(run: Run) -> None:
    folder = _save(run, 3, commit=False)
    assert not checkpoints.is_complete(folder)
    checkpoints.commit(folder, 3, "abc")
    assert checkpoints.is_complete(folder)
    os.truncate(folder / "model.safetensors", 99)
    assert not checkpoints.is_complete(folder)
    (folder / "model.safetensors").unlink()
    assert not checkpoints.is_complete(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"files": 3}', b"\xff\xfe"])
def test_a_damaged_marker_is_no_marker(run: Run, content: bytes) -> None:
    folder = _save(run, 3)
    (folder / checkpoints.MARKER).write_bytes(content)
    assert not checkpoints.is_complete(folder)


def test_committing_twice_is_the_same_as_once(run: Run) -> None:
    folder = _save(run, 3)
    before = checkpoints.marker(folder)
    checkpoints.commit(folder, 3, "abc", {"eval_loss": 1.0})
    assert checkpoints.marker(folder) == before and checkpoints.is_complete(folder)


def test_the_newest_is_the_highest_whole_step_and_not_the_latest_name_or_time(run: Run) -> None:
    assert checkpoints.newest_complete(run) is None
    for step in (100, 20, 3):
        _save(run, step)
    _save(run, 120, commit=False)
    (run.checkpoints / "checkpoint-final").mkdir()
    assert checkpoints.newest_complete(run) == run.checkpoints / "checkpoint-100"


def test_retention_keeps_the_newest_the_best_the_pinned_and_what_is_being_written(run: Run) -> None:
    for step in (1, 2, 3, 4, 5):
        _save(run, step)
    _save(run, 6, commit=False)
    (run.checkpoints / "checkpoint-1" / checkpoints.PIN).touch()
    assert checkpoints.retire(run, keep=2, keep_also={2}) == [3]
    assert [checkpoints.step_of(folder) for folder in checkpoints.complete(run)] == [1, 2, 4, 5]
    assert sorted(path.name for path in run.checkpoints.iterdir())[-1] == "checkpoint-6"
    assert checkpoints.retire(run, keep=2, keep_also={2}) == []
    for name in (checkpoints.PIN, checkpoints.IN_USE):  # either keeps it, and none is part of what is whole
        (run.checkpoints / "checkpoint-1" / checkpoints.PIN).unlink(missing_ok=True)
        (run.checkpoints / "checkpoint-1" / name).touch()
        assert checkpoints.retire(run, keep=2, keep_also={2}) == []
    (run.checkpoints / "checkpoint-1" / checkpoints.IN_USE).unlink()
    assert checkpoints.retire(run, keep=2, keep_also={2}) == [1]


def test_cleaning_removes_only_what_a_crash_left(run: Run) -> None:
    _save(run, 1)
    _save(run, 2, commit=False)
    (run.checkpoints / ".trash-7-checkpoint-0").mkdir()
    (run.path / ".tmp-1-state.json").touch()
    assert sorted(checkpoints.clean(run)) == [".tmp-1-state.json", ".trash-7-checkpoint-0", "checkpoint-2"]
    assert [path.name for path in run.checkpoints.iterdir()] == ["checkpoint-1"]
    assert run.job_json.exists()


def test_room_counts_what_must_stay_free(run: Run) -> None:
    assert checkpoints.room_for(run, 0, spare=0)
    room = checkpoints.room_for(run, 1 << 60)
    assert not room and room.needed > room.free


def test_the_fingerprint_of_a_job_ignores_its_name_and_the_order_of_keys() -> None:
    one = checkpoints.job_hash({"name": "a", "train": {"x": 1, "y": None}})
    assert one == checkpoints.job_hash({"train": {"y": None, "x": 1}, "name": "b"})
    assert one != checkpoints.job_hash({"train": {"y": None, "x": 2}})
