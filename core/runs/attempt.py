"""One attempt of one run, from the moment its slots are free to its final state: what a supervisor does when it no
longer waits. It starts the training process as its child, stays with it, and writes the states. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from core.runs import elsewhere, process
from core.runs.checkpoints import clean
from core.runs.folder import Run
from core.runs.gpus import company
from core.runs.journal import read_records
from core.runs.locks import open_lock, try_lock
from core.runs.outcome import Exit, Said, fault_of, judge, oom_kills
from core.runs.queue import Grant
from core.runs.reasons import because
from core.runs.states import ENDS, Book, last_checkpoint, last_step
from core.runs.storage import give_up_reserve, keep_reserve, read_json, refusal
from core.runs.watch import Watch
from data.errors import FactoryError

CHECKOUT = Path(__file__).resolve().parents[2]
START_LIMIT = 900.0
"""Seconds until the training process must have said that it is ready."""
SWEEP_PATIENCE = 1.0
"""Seconds that processes left behind get to end by themselves, and again after SIGTERM."""
UNKILLABLE = 30.0
"""Seconds after SIGKILL until followers are told that it does not work; the slot stays taken."""


class Attempt:
    """The training process and its states. `grant` holds the slots; without one the run was cancelled as it waited."""

    def __init__(self, run: Run, watch: Watch, grant: Grant | None) -> None:
        self.run = run
        self.book = Book(run, read_json(run.state_json))
        self.watch = watch
        self.slots: dict[str, int] = grant.slots if grant else {}
        self.granted = grant.at if grant else None
        self.touched = time.monotonic()
        self.asked = False
        self.forced = self.at_once = False
        self.start_limit = START_LIMIT

    def main(self) -> None:
        """Train, and write how it ended."""
        if self.granted is None:
            self.end("stopped", because("cancelled", "cancelled while it waited in the queue"))
            return
        keep_reserve(self.run.path)
        child = self.start()
        if child is not None:
            self.attend(child)

    def start(self) -> subprocess.Popen[bytes] | None:
        """Start the training process; None when that failed and the run has ended."""
        self.said, self.oom_before = Said(), oom_kills()
        self.heard_to = self.heard_from = self.book.journal.size()
        self.book.enter("starting", slots=list(self.slots), started=self.granted)
        self.started = time.monotonic()
        alive = open_lock(self.run.alive)
        if not try_lock(alive):
            text = f"processes of an earlier attempt live on: `factory stop {self.run.id}` ends them"
            self.end("failed", because("earlier_attempt_lives", text, id=self.run.id))
            return None
        clean(self.run)
        for sentence in company(self.slots):
            self.book.warn("gpu_shared", sentence)
        process.adopt_orphans()
        plan = read_json(self.run.plan_json)
        env = process.environment(os.environ, plan.get("environment", []), list(self.slots), self.run.home)
        argv = [*plan["argv"], str(self.run.path)]
        if (
            plan.get("training", plan["argv"]) != plan["argv"]
        ):  # a launcher waits for other machines, and says how long
            self.start_limit = float("inf")
        keep = [alive, *self.slots.values()]  # a slot is free when nothing of the run lives any more
        try:
            child = process.start(argv, CHECKOUT, env, self.run.log, keep)
        except OSError as error:
            text = f"{argv[0]} could not be started: {error.strerror}"
            self.end("failed", because("not_started", text, value=argv[0], problem=error.strerror))
            return None
        self.book.record["child"] = child.pid
        self.book.save()
        return child

    def attend(self, child: subprocess.Popen[bytes]) -> None:
        """Stay with the training process until it has ended, then sweep and judge."""
        ended = self.collect(child)
        while ended is None:
            self.hear()
            self.heed_stop(child)
            self.stay_fresh()
            self.watch.sleep(0.1 if self.book.state == "starting" else 1.0)
            ended = self.collect(child)
        self.hear()
        process.sweep(0.0 if self.forced else SWEEP_PATIENCE)
        self.end_elsewhere()
        self.hear()  # what came from there at the end
        state, reason = judge(self.run, ended, self.said, asked=self.asked, forced=self.forced)
        if state == "stopped" and self.at_once:
            text = "ended at once, as was asked; nothing was saved since the last checkpoint"
            reason = because("ended_at_once", text)
        facts = {"exit": ended.code, "signal": ended.signal, "forced": self.forced, "peak_bytes": ended.peak}
        fault = fault_of(self.run, ended, self.said, state)
        if state == "succeeded":
            reason = self.export()
        self.end(state, reason, values=self.said.values, fault=fault, **facts)
        if state == "succeeded":
            self.teach()

    def end_elsewhere(self) -> None:
        """End what the run may still have on other machines, and tell when that is not sure."""
        problem = elsewhere.end(self.run)
        if problem:
            self.book.warn("left_elsewhere", problem)

    def export(self) -> str | None:
        """Make the exports that the job asks for; a sentence when some are missing."""
        from core.runs.after import make_exports, wanted

        specs = wanted(read_json(self.run.job_json))
        if not specs:
            return None

        def pause() -> None:
            self.stay_fresh()
            self.watch.sleep(0.5)

        return make_exports(
            self.run, specs, self.book, stopped=lambda: self.watch.stop_request() is not None, pause=pause
        )

    def stay_fresh(self) -> None:
        """Touch our slots once an hour, or a cleaner of old files under /tmp would take them for rubbish."""
        if time.monotonic() - self.touched > 3600:
            self.touched = time.monotonic()
            for descriptor in self.slots.values():
                with contextlib.suppress(OSError):  # another user made the file; the lock counts
                    os.utime(descriptor)

    def collect(self, child: subprocess.Popen[bytes]) -> Exit | None:
        """How the training process ended, or None while it lives."""
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid == 0:
            return None
        child.returncode = os.waitstatus_to_exitcode(status)
        unit = 1 if sys.platform == "darwin" else 1024
        return Exit(child.returncode, usage.ru_maxrss * unit, oom_kills() - self.oom_before)

    def hear(self) -> None:
        """Read what the training process wrote since the last time."""
        records, self.heard_to = read_records(self.run.events, self.heard_to)
        for record in records:
            self.said.hear(record)
        if self.said.total_steps not in (None, self.book.record.get("total_steps")):
            self.book.record["total_steps"] = self.said.total_steps
            self.book.save()  # at once: lists tell the time left from it
        if (self.said.ready or self.said.done) and self.book.state == "starting":
            self.book.enter("running")

    def heed_stop(self, child: subprocess.Popen[bytes]) -> None:
        """Pass a stop request on, and enforce it when its grace is over or somebody asked twice."""
        request = self.watch.stop_request()
        late = self.book.state == "starting" and time.monotonic() - self.started > self.start_limit
        if late and not request:
            self.said.error = f"no sign of life within {self.start_limit:.0f} s of its start"
            process.end_group(child.pid, signal.SIGKILL)
        if not request:
            return
        if not self.asked:
            self.asked = True
            grace = float(os.environ.get("FACTORY_GRACE") or self.said.grace())
            self.deadline = time.monotonic() + grace
            self.book.enter("stopping", grace=round(grace, 1), grace_until=round(time.time() + grace, 1))
            # Only the trainer itself: a data loader's worker that got SIGTERM would take the step down with it.
            os.kill(child.pid, signal.SIGTERM)
            process.end_group(child.pid, signal.SIGCONT)
        if self.forced and time.monotonic() > self.deadline + UNKILLABLE:
            self.deadline = float("inf")
            text = f"Process {child.pid} does not die of signal 9: the kernel waits for a device or a disk."
            self.book.warn("unkillable", text)
        if (request == "now" or time.monotonic() > self.deadline) and not self.forced:
            self.forced, self.at_once, self.deadline = True, request == "now", time.monotonic()
            process.end_group(child.pid, signal.SIGKILL)
            for pid in process.descendants(os.getpid()):
                if pid != child.pid:
                    os.kill(pid, signal.SIGKILL)

    def teach(self) -> None:
        """Let the home's table take in how fast this run was, for later forecasts. Without room it learns nothing."""
        from core.job.calibration import learn

        plan = read_json(self.run.plan_json)
        if plan.get("training", plan["argv"]) != plan["argv"]:
            return  # other machines, another speed
        events, _ = read_records(self.run.events, self.heard_from)
        with contextlib.suppress(OSError):
            learn(self.run.home, plan, events)

    def end(self, state: str, reason: str | None, **facts: Any) -> None:
        """Write the final state with everything a reader wants to know, and tidy up."""
        facts |= {"ended": round(time.time(), 3), "step": last_step(self.run)}
        self.book.enter(state, reason, checkpoint=last_checkpoint(self.run), **facts)
        give_up_reserve(self.run.path)

    def give_up(self, problem: Exception) -> None:
        """Our own failure: end what was started, and say so if the disk lets us. Otherwise readers see a lost run."""
        for pid in process.descendants(os.getpid()):
            os.kill(pid, signal.SIGTERM)
        process.sweep(float(os.environ.get("FACTORY_GRACE") or 30.0))
        self.end_elsewhere()
        if self.book.state in ENDS:
            return
        if isinstance(problem, OSError):
            problem = refusal(problem, self.run.path)
        if isinstance(problem, FactoryError):
            one = problem.findings[0]
            reason = because(one.code, str(problem), **{**one.params, "field": one.field, "value": one.value})
        else:
            reason = because(
                "supervisor_fault", f"fault in the supervisor: {problem!r}", problem=repr(problem)
            )
        self.end("failed", reason)
