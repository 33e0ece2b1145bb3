"""Places that cannot be written or are taken, and runs that were deleted: told before any work, with what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from core.cli import main
from core.runs import checkpoints, exports
from core.runs.folder import Run, create_run
from core.runs.storage import refuse_target, write_json
from data.errors import FactoryError
from tests.unit.webui.conftest import make_run

NO_FOLDER = "/proc/zz"
"""No user, not even root, makes a folder there."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of one's own."""
    return tmp_path / "home"


@pytest.mark.parametrize("inner", ["new", "new/deep"])
def test_a_folder_that_can_be_made_is_let_pass_and_nothing_of_it_is_left(tmp_path, inner):
    refuse_target(tmp_path / inner)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_or_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for folder, code in ((tmp_path, "target_exists"), (Path(NO_FOLDER), "target_not_written")):
        with pytest.raises(FactoryError) as refused:
            refuse_target(folder)
        assert refused.value.findings[0].code == code
    with pytest.raises(FactoryError, match="cannot be written"):
        refuse_target(tmp_path / "file" / "x")


def test_an_export_to_nowhere_from_no_base_is_refused_at_once_and_leaves_no_record(home, tmp_path):
    run, _ = make_run(home, "succeeded")
    run.model.mkdir()
    checkpoints.commit(run.model, 4, "a hash")
    for out, base, said in (
        (tmp_path, None, "exists already"),
        (Path(NO_FOLDER), None, "cannot be written"),
        (None, str(tmp_path / "nope"), "--base"),
    ):
        with pytest.raises(FactoryError, match=said):
            exports.start(run, {"name": "adapter"}, out=out, base=base)
    with pytest.raises(FactoryError) as refused:
        exports.start(run, {"name": "adapter"}, out=tmp_path, base=str(tmp_path / "nope"))
    assert [one.code for one in refused.value.findings] == ["target_exists", "base_unknown"]
    assert not run.exports.exists()


def test_serve_on_a_port_in_use_speaks_of_serve(home, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["--home", str(home), "serve", "smollm2-135m", "--port", port]) == 2
    told = capsys.readouterr().err
    assert f"factory --home {home} serve smollm2-135m --port" in told and "board" not in told


def test_a_home_that_cannot_be_made_is_told_as_that(capsys):
    assert main(["--home", "/proc/nope", "board"]) == 2
    told = capsys.readouterr().err
    assert "The home /proc/nope cannot be made" in told and "resume" not in told


def test_a_deleted_run_is_told_to_be_restorable_and_comes_back_by_a_part_of_its_id(home, capsys):
    run, _ = make_run(home, "succeeded")
    at = ["--home", str(home)]
    part = run.id[-4:]
    assert main([*at, "runs", "delete", part]) == 0
    for words in (
        ["resume", run.id],
        ["runs", "describe", part],
        ["runs", "delete", run.id],
        ["eject", part],
    ):
        capsys.readouterr()
        assert main([*at, *words]) == 2
        assert f"factory runs restore {run.id}" in capsys.readouterr().err
    assert main([*at, "runs", "restore", "zzzz"]) == 2
    assert main([*at, "runs", "restore", part]) == 0
    assert run.job_json.is_file()


def test_eject_takes_the_job_of_a_run_by_its_id(home, tmp_path, capsys):
    job = {"model": "smollm2-135m", "data": str(tmp_path / "gone.jsonl"), "stage": "sft"}
    run: Run = create_run(home, "", job, {})
    write_json(run.state_json, {"version": 1, "id": run.id, "state": "succeeded"})
    assert main(["--home", str(home), "eject", run.id[-4:], "--out", str(tmp_path / "out")]) == 2
    assert "gone.jsonl" in capsys.readouterr().err
    assert main(["--home", str(home), "eject", "no-such-run"]) == 2
    assert "There is no job file no-such-run" in capsys.readouterr().err
