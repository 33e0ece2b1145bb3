"""What people do to a run: begin, resume, stop, move and end it. Each runs under a supervisor of its own on this
machine, whatever its launcher; no daemon, nothing to keep running.

Light: a submit imports no library, so that a shell loop over hundreds of jobs is a matter of seconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.job.later import changes, told
from core.runs import elsewhere
from core.runs.folder import Run, create_run, list_runs
from core.runs.home import open_home
from core.runs.locks import is_held, take
from core.runs.queue import Queue, Wish, new_key, wish_for
from core.runs.resume import changed_versions, resumed_job, same_data, same_job
from core.runs.states import ENDS, Book, Status, last_checkpoint, new_record, read_status
from core.runs.storage import read_json, refusal, write_json
from core.runs.watch import wake
from data.errors import FactoryError, refuse

CHECKOUT = Path(__file__).resolve().parents[2]
SUPERVISOR = CHECKOUT / "core" / "runs" / "supervisor.py"
SECOND_STOP = "now"
DRAFT = "draft.json"
"""In a run folder from its first moment on: a server killed right after the start still knows what it started."""


def submit(
    home: Path,
    job_text: str,
    job: Mapping[str, Any],
    plan: Mapping[str, Any],
    *,
    force_home: bool = False,
    draft: str | None = None,
) -> Run:
    """Write a new run and put it into this machine's queue under a supervisor of its own; returns at once.

    `draft` is the id under which the job was written, kept with the run for `run_of_draft`. Raises FactoryError when
    the home cannot hold runs, the disk is too full, or a device is not there.
    """
    open_home(home, force=force_home or shared(job))
    wish = wish_of(job)
    with contextlib.ExitStack() as held:
        locks: list[int] = []

        def own(made: Run) -> None:
            if draft is not None:
                write_json(made.path / DRAFT, draft)
            locks.append(held.enter_context(_owned(made)))

        run = create_run(home, job_text, job, plan, own=own)
        _queue_up(run, locks[0], Book(run, new_record(run, job, plan)), wish, attempt=1)
    return run


def wish_of(job: Mapping[str, Any]) -> Wish:
    """The slots of this machine that a job needs. A job of Slurm's needs none: its devices are the cluster's."""
    if launcher_of(job) == "slurm":
        return Wish((), 0)
    return wish_for((job.get("hardware") or {}).get("devices"))


def shared(job: Mapping[str, Any]) -> bool:
    """Whether other machines have to see the home of a job, so that it may lie on a network."""
    return launcher_of(job) != "local"


def launcher_of(job: Mapping[str, Any]) -> str:
    """The name of a resolved job's launcher; jobs of older versions have none and run here."""
    return str((job.get("launcher") or {}).get("name") or "local")


def run_of_draft(home: Path, draft: str) -> Run | None:
    """The run that was started from a draft, deleted ones aside; None when there is none."""
    for run in reversed(list_runs(home)):
        with contextlib.suppress(OSError, ValueError):
            if read_json(run.path / DRAFT) == draft:
                return run
    return None


def resume(run: Run, overrides: Sequence[str] = (), *, force_home: bool = False) -> Status:
    """Begin the next attempt of a run from its newest whole checkpoint, or from the start when there is none.

    `overrides` change what may change (core/job/later.py); the change is told in the events. Refused (FactoryError)
    when the run is live, has succeeded and is not made longer, has processes left, or when its job or its data are no
    longer what the checkpoint was made with.
    """
    open_home(run.home, force=force_home or shared(read_json(run.job_json)))
    with _owned(run) as lock:
        status = read_status_of_owned(run)
        if is_held(run.alive) or (status.state == "lost" and elsewhere.left(run)):
            text = f"Processes of run {run.id} live on without a supervisor: end them with `factory stop {run.id}`."
            raise refuse("run_has_orphans", text, value=run.id)
        if problem := elsewhere.end(run):
            raise refuse("run_has_orphans", f"Run {run.id} cannot go on yet: {problem}.", value=run.id)
        job, plan = read_json(run.job_json), read_json(run.plan_json)
        same_job(run, job, plan)
        asked = resumed_job(run, status, job, overrides)
        same_data(run, plan)
        record = {**new_record(run, job, plan), **status.record, "state": status.state}
        try:
            run.stop_file.unlink(missing_ok=True)
            if asked != job:
                write_json(run.job_json, asked)
        except OSError as error:
            raise refusal(error, run.path) from error
        wish = wish_of(job)
        book = Book(run, record)
        if changed := changes(plan.get("job") or job, asked):
            book.warn("settings_changed", f"Not as the run began: {told(changed)}.", level="note")
        if newer := changed_versions(plan, run.home):
            text = (
                f"Libraries have changed since the run began ({newer}): its numbers may differ from here on."
            )
            book.warn("versions_changed", text)
        _queue_up(run, lock, book, wish, attempt=int(record.get("attempt") or 0) + 1)
    return read_status(run)


def stop(run: Run, *, now: bool = False) -> Status:
    """Ask a run to save and stop; a second request, or `now`, ends it without saving. Returns at once.

    A waiting run is cancelled. Orphans of a lost run are left to `end_orphans`. Raises FactoryError when the run is
    over already.
    """
    status = read_status(run)
    if status.over:
        text = f"Run {run.id} is not running: it {status.words}."
        raise refuse("run_not_running", text, value=run.id, state=status.state)
    again = run.stop_file.exists()
    try:
        run.stop_file.write_text(SECOND_STOP if now or again else "", encoding="ascii")
    except OSError as error:
        raise refusal(error, run.path) from error
    wake(run)
    return read_status(run)


def end_orphans(run: Run, grace: float = 60.0) -> int:
    """End what is left of a lost run: SIGTERM, so that it saves, and SIGKILL after `grace` seconds. How many.

    What it has on other machines is ended too. Raises FactoryError when that is not sure.
    """
    from core.runs.process import end_orphans as end

    there = elsewhere.left(run) is not None
    ended = end(run.alive, grace)
    if problem := elsewhere.end(run):
        raise refuse(
            "run_has_orphans", f"Run {run.id} still has something elsewhere: {problem}.", value=run.id
        )
    return ended + there


def to_front(run: Run) -> None:
    """Move a waiting run to the front of the machine's queue. Raises FactoryError when it does not wait."""
    status = read_status(run)
    moved = False
    if status.state == "queued":
        try:
            moved = Queue().to_front(str(status.record.get("ticket")))
        except PermissionError as error:
            text = f"Run {run.id} belongs to another user of this machine, who alone may move it."
            raise refuse("not_your_run", text, value=run.id) from error
    if not moved:
        text = f"Run {run.id} is not waiting in the queue: it {read_status(run).words}."
        raise refuse("run_not_queued", text, value=run.id, state=status.state)
    wake(run)


@contextlib.contextmanager
def _owned(run: Run) -> Any:
    """The descriptor of the run's lock. Refused when somebody else owns the run."""
    try:
        lock = take(run.lock)
    except OSError as error:
        raise refusal(error, run.path) from error
    if lock is None:
        text = f"Run {run.id} is already {read_status(run).state}: follow it with `factory logs -f {run.id}`."
        raise refuse("run_active", text, value=run.id)
    try:
        yield lock
    finally:
        os.close(lock)


def read_status_of_owned(run: Run) -> Status:
    """The last state of a run whose lock this process holds: an end, or lost."""
    try:
        record = read_json(run.state_json)
    except (FileNotFoundError, ValueError):
        record = {}
    state = record.get("state")
    return Status(run, state if state in ENDS else "lost", record)


def _queue_up(run: Run, lock: int, book: Book, wish: Wish, *, attempt: int) -> None:
    """Write the attempt and its first state, then hand the locked descriptor to a supervisor."""
    key = new_key()
    fresh = dict.fromkeys(
        ("exit", "signal", "forced", "ended", "started", "slots", "child", "values", "grace")
    )
    try:
        resume = last_checkpoint(run)
        if attempt > 1:  # a new folder has its first attempt in it
            write_json(run.attempt_json, {"attempt": attempt, "resume": resume})
        book.record |= {
            **fresh,
            "attempt": attempt,
            "ticket": key,
            "wish": list(wish.slots),
            "resume": resume,
        }
        book.enter("queued")
        try:
            Queue().enter(wish, run.path, key, lambda ticket: _spawn(run, key, lock, ticket))
        except FactoryError as error:
            book.enter("failed", str(error))
            raise
    except OSError as error:
        raise refusal(error, run.path) from error
    finally:
        book.journal.close()


def _spawn(run: Run, key: str, lock: int, ticket: int) -> int:
    """Start the supervisor, detached from this terminal and session; it is born holding both locks."""
    import fcntl

    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200) for descriptor in (lock, ticket)]
    log = str(run.path / "supervisor.log")
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        *((os.POSIX_SPAWN_DUP2, descriptor, 3 + index) for index, descriptor in enumerate(high)),
    ]
    # -S and -P: neither site-packages nor the folder the user stands in; the standard library is all it needs.
    argv = [sys.executable, "-S", "-P", str(SUPERVISOR), str(run.path), key]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUTF8": "1"}
    try:
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=actions, setsid=True)
    except OSError as error:
        text = f"The supervisor of run {run.id} could not be started with {sys.executable}: {error.strerror}."
        raise refuse("supervisor_not_started", text, value=sys.executable) from error
    finally:
        for descriptor in high:
            os.close(descriptor)
    # A server that submits lives on: somebody has to collect the supervisor when it ends.
    threading.Thread(target=_collect, args=(pid,), daemon=True).start()
    return pid


def _collect(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
