"""Faults on the real training process, on a tiny model: what is saved stays whole, and a resumed run loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.chat.pool import Pool
from core.chat.speakers import of_model
from core.job.machine import Machine
from core.job.plan import make_plan
from core.job.spec import JobSpec
from core.runs import checkpoints, control, events
from core.runs.folder import Run, list_runs
from core.runs.process import holders_of
from core.runs.states import read_status
from core.runs.storage import read_json
from tests.cpu.conftest import chats, write_rows
from tests.faults.conftest import child, logs, over, supervisor
from tests.zygote import Zygote

STEPS = 40


@pytest.fixture(scope="module")
def job(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of many small steps with a checkpoint after every second one."""
    rows = write_rows(tmp_path_factory.mktemp("rows") / "chats.jsonl", chats(24))
    return {
        "model": tiny,
        "data": rows,
        "stage": "sft",
        "method": "full",
        "train": {
            "max_steps": STEPS,
            "batch_size": 2,
            "save_steps": 2,
            "logging_steps": 1,
            "learning_rate": 1e-3,
        },
        "evaluate": {"prompts": ["Hi?"], "max_new_tokens": 2},
    }


@pytest.fixture(scope="module")
def undisturbed(
    job: dict[str, Any], zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The same job run through without any fault: its losses and its weights."""
    done = zygote.call("tests.cpu.jobs:train", job=job, home=str(tmp_path_factory.mktemp("undisturbed")))
    assert done["code"] == 0
    return done | {"weights": zygote.call("tests.cpu.jobs:weights", folder=str(Path(done["run"]) / "model"))}


def submit(
    home: Path, job: dict[str, Any], wrap: list[str] | None = None, environment: tuple[str, ...] = ()
) -> Run:
    """Put the job into the queue as the command line does; `wrap` is a command that the training runs under."""
    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    plan = make_plan(JobSpec.model_validate(job), home, machine).model_dump(mode="json")
    plan["argv"] = [*(wrap or []), *plan["argv"]]
    plan["environment"] += environment
    return control.submit(home, json.dumps(job), plan["job"], plan)


def at_step(run: Run, step: int) -> None:
    """Wait until the run has done this step."""
    seen(run, lambda event: event.event == "metric" and event.step >= step)


def seen(run: Run, wanted: Callable[[Any], bool], seconds: float = 60.0) -> None:
    """Wait until the run has told such an event; fails when the run ends without it."""
    deadline, offset = time.monotonic() + seconds, 0
    while True:
        ended = read_status(run).over
        found, offset = events.read_events(run.events, offset)
        if any(wanted(event) for event in found):
            return
        assert not ended and time.monotonic() < deadline, f"{read_status(run)}{logs(run)}"
        time.sleep(0.01)


def losses(run: Run) -> dict[str, float]:
    """The loss of every step, the last attempt's where several did it."""
    told = events.read_events(run.events)[0]
    return {
        str(event.step): event.values["loss"]
        for event in told
        if event.event == "metric" and "loss" in event.values
    }


def assert_nothing_lost(run: Run, undisturbed: dict[str, Any], zygote: Zygote) -> None:
    """The run has succeeded with the losses and the weights of one that nothing happened to, to the last bit."""
    status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    assert losses(run) == undisturbed["losses"]
    assert zygote.call("tests.cpu.jobs:weights", folder=str(run.model)) == undisturbed["weights"]


def assert_whole(run: Run, zygote: Zygote) -> None:
    """The newest checkpoint can be loaded, tensor by tensor."""
    newest = checkpoints.newest_complete(run)
    assert newest is not None and zygote.call("tests.cpu.jobs:weights", folder=str(newest))


def test_kill_9_of_the_training_process(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote
) -> None:
    run = submit(home, job)
    at_step(run, 5)
    os.kill(child(run), signal.SIGKILL)
    status = over(run)
    assert (status.state, status.record["signal"]) == ("failed", 9)
    assert status.record["checkpoint"] is not None
    assert_whole(run, zygote)
    with run.events.open("ab") as file:  # and the machine went down in the middle of a line
        file.write(b'{"event": "metric", "step": 99, "val')
    assert control.resume(run).attempt == 2
    assert_nothing_lost(run, undisturbed, zygote)


def test_kill_9_of_the_supervisor(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote
) -> None:
    run = submit(home, job)
    at_step(run, 5)
    os.kill(supervisor(run), signal.SIGKILL)
    status = over(run)
    assert status.state == "lost" and not status.orphans
    newest = checkpoints.newest_complete(run)
    assert newest is not None and (checkpoints.step_of(newest) or 0) >= 5
    control.resume(run)
    assert_nothing_lost(run, undisturbed, zygote)


def test_kill_9_of_the_follower_in_the_c_locale(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote, tmp_path: Path
) -> None:
    file = tmp_path / "jöb.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "core.cli", "--home", str(home), "train", str(file)]
    follower = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    while not list_runs(home):
        time.sleep(0.02)
    (run,) = list_runs(home)
    at_step(run, 2)
    follower.kill()
    follower.wait()
    assert_nothing_lost(run, undisturbed, zygote)
    (row,) = json.loads((home / "calibration.json").read_text("utf-8"))["rows"].values()
    assert row["runs"] == 1 and row["flops"] > 0  # and the next forecast knows how fast this machine is


def test_stop_of_a_suspended_training_process_at_a_step_that_is_saved_already(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote
) -> None:
    run = submit(home, {**job, "train": job["train"] | {"save_steps": 1}})
    at_step(run, 3)
    os.kill(child(run), signal.SIGSTOP)
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["exit"], status.record["forced"]) == ("stopped", 3, False), logs(run)
    assert status.record["checkpoint"] == f"checkpoints/checkpoint-{status.record['step']}"
    assert_whole(run, zygote)
    told = losses(run)
    assert told == {step: loss for step, loss in undisturbed["losses"].items() if step in told}


@pytest.mark.slow
def test_a_helper_that_left_its_family_and_is_deaf_does_not_outlive_a_stop(
    home: Path, job: dict[str, Any], zygote: Zygote
) -> None:
    run = submit(home, job, wrap=[sys.executable, "-m", "tests.faults.beside"])
    at_step(run, 3)
    assert len(holders_of(run.alive)) >= 2
    control.stop(run)
    status = over(run)
    assert (status.state, status.record["exit"]) == ("stopped", 3), logs(run)
    assert holders_of(run.alive) == []
    assert_whole(run, zygote)


@pytest.mark.slow
def test_of_three_starts_of_a_stopped_run_one_goes_on(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote
) -> None:
    run = submit(home, job)
    at_step(run, 3)
    control.stop(run)
    over(run)
    command = [sys.executable, "-m", "core.cli", "--home", str(home), "resume", run.id, "--detach"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    words = [one.communicate() for one in started]
    assert sorted(one.returncode for one in started) == [0, 2, 2], words
    assert_nothing_lost(run, undisturbed, zygote)
    assert read_status(run).attempt == 2


@pytest.mark.slow
def test_a_talk_beside_a_run_changes_nothing_of_it(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], tiny: str, zygote: Zygote
) -> None:
    run, pool, answers = submit(home, job), Pool(home, idle=0), 0
    try:
        at_step(run, 1)
        speaker = of_model(tiny, home)
        turns = [{"role": "user", "content": "What is 3 and 3?"}]
        while not read_status(run).over:
            for event in pool.answer(speaker, turns, {"max_tokens": 20, "temperature": 1.0, "seed": answers}):
                answers += event["event"] == "done"
    finally:
        pool.close()
    assert answers > 0
    assert_nothing_lost(run, undisturbed, zygote)


@pytest.mark.parametrize("phase", ["start", "loading", "preparing", "saving"])
def test_stop_in_every_phase_ends_cleanly(home: Path, job: dict[str, Any], phase: str) -> None:
    run = submit(home, {**job, "train": job["train"] | {"max_steps": 2}})
    if phase == "start":
        child(run)
    else:
        seen(run, lambda event: event.event == "phase" and event.name == phase)
    control.stop(run)
    status = over(run)
    assert status.state == ("succeeded" if phase == "saving" else "stopped") or status.state == "stopped", (
        status.reason
    )
    assert not status.record["forced"]
    if status.state == "stopped":
        assert not checkpoints.is_complete(run.model)
    assert local_end_is_consistent(run)


def local_end_is_consistent(run: Run) -> bool:
    """A model folder is there whole or not at all."""
    return checkpoints.is_complete(run.model) or not run.model.exists()


def test_a_clock_that_is_ten_days_behind_changes_nothing(
    home: Path, job: dict[str, Any], undisturbed: dict[str, Any], zygote: Zygote
) -> None:
    if shutil.which("faketime") is None:
        pytest.skip("needs faketime")
    run = submit(home, job, wrap=["faketime", "-f", "-10d"])
    assert_nothing_lost(run, undisturbed, zygote)
    told = [event.event for event in events.read_events(run.events)[0]]
    assert told[-1] == "state" and told.index("done") < len(told) - 1
    assert read_status(run).record["step"] == STEPS


def test_a_limit_on_file_size_is_told_as_a_full_disk(home: Path, job: dict[str, Any]) -> None:
    run = submit(home, job, wrap=["prlimit", f"--fsize={200 << 10}"])
    status = over(run)
    assert status.state == "failed" and "is full" in (status.reason or ""), f"{status.reason}{logs(run)}"
    assert checkpoints.newest_complete(run) is None


@pytest.mark.root
@pytest.mark.parametrize("number", [1, 5])
def test_an_fsync_that_fails_is_a_storage_error_and_never_a_checkpoint(
    home: Path, job: dict[str, Any], number: int
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    inject = f"inject=fsync:error=EIO:when={number}+"
    run = submit(home, job, wrap=["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fsync", "-e", inject])
    status = over(run)
    assert status.state == "failed", status
    assert "EIO" in (status.reason or "") or "Input/output error" in (status.reason or ""), (
        f"{status.reason}{logs(run)}"
    )
    assert checkpoints.newest_complete(run) is None
    assert not [event for event in events.read_events(run.events)[0] if event.event == "checkpoint"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of a few MiB; calling it with another size grows it."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount a file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)

    def resize(megabytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(folder)], check=True)

    resize.folder = folder  # type: ignore[attr-defined]
    yield resize
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(hog: Path, leave: int = 0) -> None:
    """Take all of a disk with a file, twice, as somebody else may have given some back; then leave a part free."""
    with hog.open("ab", buffering=0) as file:
        for _ in range(2):
            with contextlib.suppress(OSError):
                while file.write(b"x" * 4096):
                    pass
            time.sleep(0.2)
        file.truncate(file.tell() - leave)


@pytest.mark.root
def test_a_disk_that_fills_up_in_a_checkpoint_costs_only_that_checkpoint(
    home: Path,
    small_disk: Any,
    job: dict[str, Any],
    undisturbed: dict[str, Any],
    zygote: Zygote,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FACTORY_DISK_SPARE", "0")
    small = small_disk.folder / "home"
    run = submit(small, job)
    at_step(run, 4)
    fill(small_disk.folder / "hog", leave=600 << 10)  # about half a checkpoint
    status = over(run)
    assert status.state in ("failed", "succeeded", "stopped"), status
    assert_whole(run, zygote)
    told = events.read_events(run.events)[0]
    assert any(getattr(event, "code", None) in ("disk_full", "checkpoint_skipped") for event in told), logs(
        run
    )
    (small_disk.folder / "hog").unlink()
    if status.state != "succeeded":
        control.resume(run)
        status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    assert zygote.call("tests.cpu.jobs:weights", folder=str(run.model)) == undisturbed["weights"]


@pytest.mark.root
def test_a_disk_that_is_full_to_the_last_byte_loses_no_state(
    home: Path, small_disk: Any, job: dict[str, Any]
) -> None:
    small = small_disk.folder / "home"
    run = submit(small, {**job, "train": job["train"] | {"save_steps": 1000}})
    at_step(run, 4)
    fill(small_disk.folder / "hog")
    status = over(run)
    assert status.state in ("failed", "succeeded"), f"{status}{logs(run)}"
    assert read_json(run.state_json)["state"] == status.state
    (small_disk.folder / "hog").unlink()
    small_disk(64)
    if status.state == "failed":
        assert "full" in (status.reason or ""), status.reason
        control.resume(run)
    assert over(run).state == "succeeded", logs(run)


@pytest.mark.root
def test_a_read_only_home_is_refused_before_anything_starts(
    home: Path, job: dict[str, Any], tmp_path: Path
) -> None:
    from data.errors import FactoryError

    if os.getuid() != 0:
        pytest.skip("needs root to mount a file system")
    run = submit(home, job)
    control.stop(run, now=True)
    over(run)
    subprocess.run(["mount", "--bind", str(home), str(home)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(home)], check=True)
        for start in (lambda: submit(home, job), lambda: control.resume(run)):
            with pytest.raises(FactoryError, match="is read-only: choose a home folder that can be written"):
                start()
        assert read_status(run).attempt == 1
    finally:
        subprocess.run(["umount", str(home)], check=True)


@pytest.mark.parametrize("kills", [10, pytest.param(120, marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_never_leaves_a_broken_newest_checkpoint(
    home: Path, job: dict[str, Any], zygote: Zygote, kills: int
) -> None:
    report = zygote.call("tests.faults.kills:kill_often", job=job, home=str(home), kills=kills)
    assert report["broken"] == [] and report["killed"] == kills
    assert report["moments_with_an_unfinished_folder"] >= (1 if kills > 100 else 0)
