"""States: which may follow which, what a reader concludes, and any order of start, stop and kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.runs import events
from core.runs.control import read_status_of_owned
from core.runs.folder import Run, create_run
from core.runs.listing import rows
from core.runs.locks import take
from core.runs.states import ENDS, FOLLOWS, Book, last_step, new_record, read_status
from core.runs.storage import keep_reserve

JOB = {"name": "t", "stage": {"name": "sft"}}


def _book(run: Run) -> Book:
    return Book(run, new_record(run, JOB, {"steps": 9}) | {"attempt": 1})


def test_a_state_that_is_no_end_with_a_free_lock_is_lost(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", JOB, {})
    lock = take(run.lock)
    assert lock is not None
    book = _book(run)
    book.enter("queued")
    assert read_status(run).state == "queued"
    os.close(lock)
    status = read_status(run)
    assert status.state == "lost" and status.over
    assert "while it was queued" in (status.reason or "")


def test_processes_without_a_supervisor_are_told_as_orphans(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", JOB, {})
    _book(run).enter("queued")
    alive = take(run.alive)
    assert alive is not None
    assert read_status(run).orphans
    os.close(alive)
    assert not read_status(run).orphans


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_damaged_state_is_a_lost_run_and_no_crash(tmp_path: Path, content: bytes) -> None:
    run = create_run(tmp_path, "", JOB, {})
    run.state_json.write_bytes(content)
    status = read_status(run)
    assert status.state == "lost" and status.reason == "state.json is missing or damaged"
    assert rows(tmp_path)[0].to_json()["state"] == "lost"


def test_the_last_step_is_found_behind_other_events(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", JOB, {})
    assert last_step(run) is None
    with events.EventWriter(run.events) as writer:
        writer.emit(events.Metric(step=7))
        for _ in range(50):
            writer.emit(events.Sample(step=7, prompt="p", answer="a" * 100))
    assert last_step(run) == 7


def test_the_last_words_of_a_run_find_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(tmp_path, "", JOB, {})
    book = _book(run)
    book.enter("queued")
    book.enter("starting")
    keep_reserve(run.path)
    real = os.write

    def full_while_reserved(descriptor: int, content: bytes) -> int:
        if (run.path / ".reserve").exists():
            raise OSError(28, "No space left on device")
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", full_while_reserved)
    book.enter("failed", "x")
    assert read_status(run).state == "failed"
    assert not (run.path / ".reserve").exists()


class AnyOrder(RuleBasedStateMachine):
    """A run as its folder and locks show it, under any order of starts, steps, stops, ends and kills."""

    @initialize(folder=st.just(None))
    def begin(self, folder: None) -> None:
        import tempfile

        self.home = Path(tempfile.mkdtemp(prefix="states-"))
        self.run = create_run(self.home, "", JOB, {})
        self.lock: int | None = take(self.run.lock)
        self.book: Book | None = _book(self.run)
        self.book.enter("queued")
        self.attempts = 1

    @precondition(lambda self: self.book is not None)
    @rule(state=st.sampled_from(["starting", "running", "stopping", *ENDS]))
    def go(self, state: str) -> None:
        assert self.book is not None
        if state not in FOLLOWS[self.book.state]:
            with pytest.raises(AssertionError):
                self.book.enter(state)
            return
        self.book.enter(state, "because")
        if state in ENDS:
            self.let_go()

    @precondition(lambda self: self.book is not None)
    @rule()
    def kill(self) -> None:
        self.let_go()

    @precondition(lambda self: self.book is None)
    @rule()
    def resume(self) -> None:
        status = read_status(self.run)
        self.lock = take(self.run.lock)
        owned = read_status_of_owned(self.run)
        assert owned.state == status.state
        if owned.state == "succeeded":
            self.let_go()
            return
        self.attempts += 1
        self.book = Book(self.run, {**owned.record, "state": owned.state, "attempt": self.attempts})
        self.book.enter("queued")

    def let_go(self) -> None:
        if self.book is not None:
            self.book.journal.close()
        self.book = None
        if self.lock is not None:
            os.close(self.lock)
        self.lock = None

    @invariant()
    def the_reader_agrees(self) -> None:
        if not hasattr(self, "run"):
            return
        status = read_status(self.run)
        assert status.attempt == self.attempts
        if self.book is not None:
            assert status.state == self.book.state
            assert take(self.run.lock, patience=0) is None
        else:
            assert status.over and status.state in (*ENDS, "lost")
        told = [event for event in events.read_events(self.run.events)[0] if event.event == "state"]
        assert told[-1].state == status.record["state"]

    def teardown(self) -> None:
        if hasattr(self, "run"):
            import shutil

            self.let_go()
            shutil.rmtree(self.home)


AnyOrder.TestCase.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_a_run_that_is_just_being_made_is_never_seen_as_lost(tmp_path: Path) -> None:
    """Its owner holds the lock before the folder has its name, so the first look already says queued."""
    held: list[int] = []
    run = create_run(tmp_path, "", JOB, {}, own=lambda made: held.append(take(made.lock) or -1))
    assert read_status(run).state == "queued"
    os.close(held[0])
    assert read_status(run).state == "lost"
