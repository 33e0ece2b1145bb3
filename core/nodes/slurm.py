"""The follower of a run that is a job of Slurm's: `python -m core.nodes.slurm RUN` hands the job in, tells what becomes
of it, passes a stop on, and ends as the job ended; with `--end RUN` it cancels what is left of it.

It is the child of the run's supervisor in the training process's place and speaks its language: events, and exit codes
0 done, 1 failed, 2 refused, 3 stopped. The training itself, on the cluster's nodes, writes into the same run folder.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.job.spec import JobSpec
from core.launchers.slurm import SCRIPT, STOP_SIGNAL, script
from core.nodes.asking import Answer, ask
from core.nodes.slurm_node import end_of, group_of
from core.nodes.slurm_words import Job, from_sacct, from_scontrol, from_squeue, how_it_ended, why_it_waits
from core.runs import elsewhere
from core.runs.courier import Courier
from core.runs.events import Error, EventWriter, Phase, Warn
from core.runs.folder import Run
from core.runs.storage import read_json

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 3
CARRY = 0.2
"""Seconds between looks for new events of the nodes."""
PAUSE = 2.0
"""Seconds between looks; after a minute they come every 10 s, so that a cluster is not asked in vain."""
GONE = 60.0
"""Seconds that a cancelled job may take to be gone: Slurm gives its processes KillWait, 30 s by default."""


class Follower:
    """One job of Slurm's, from its handing in to its end."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.writer = EventWriter(run.events)
        self.number = ""
        self.courier: Courier | None = None
        self.asked = self.silent = False
        self.told = ""
        self.ran = False
        self.began = time.monotonic()

    def main(self) -> int:
        """Hand the job in and follow it; the exit code says how it ended."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        answer = self.submit()
        if not answer.good:
            text = f"Slurm did not take the job: {answer.words}."
            self.writer.emit(Error(code="slurm_refused", message=text, field="launcher"))
            return REFUSED
        return self.end(self.follow())

    def submit(self) -> Answer:
        """Write the script into the run folder and give it to sbatch."""
        job = JobSpec.model_validate(read_json(self.run.job_json))
        text = script(job, read_json(self.run.plan_json)["training"], self.run.path)
        (self.run.path / SCRIPT).write_text(text, encoding="utf-8")
        answer = ask(["sbatch", "--parsable", SCRIPT], folder=self.run.path, patience=120.0)
        self.number = answer.out.strip().partition(";")[0]
        if answer.good and not self.number.isdigit():
            return Answer(None, "", f"sbatch answered {answer.out.strip()[:80]!r}, which is no job's number")
        if answer.good:
            elsewhere.note(self.run, f"Slurm job {self.number}", job=self.number)
            self.courier = Courier(self.run, group_of(self.number))
        return answer

    def follow(self) -> Job:
        """Look at the job until it is over, telling each change; a stop request is passed on once."""
        passed_on = False
        while True:
            job = self.look()
            if job is not None and not job.live:
                return job
            if job is not None:
                self.tell(job)
                if self.asked and not passed_on:
                    passed_on = self.pass_on(job)
            self._sleep()

    def look(self) -> Job | None:
        """The job as Slurm sees it; None when Slurm does not answer."""
        answer = ask(["squeue", "--noheader", "--jobs", self.number, "--format", "%T|%r|%N|%P"])
        job = from_squeue(answer.out) if answer.good else None
        if job is not None and job.live:
            self._answers(True, answer)
            return job
        if answer.code is None or "Unable to contact" in answer.err or "onnection" in answer.err:
            self._answers(False, answer)
            return None
        return last_seen(self.number) or self._lost(answer)

    def tell(self, job: Job) -> None:
        """An event when the job's state or the reason for its waiting is another than before."""
        if job.waiting:
            text = f"Slurm job {self.number} waits in partition {job.partition} ({why_it_waits(job)})"
        elif job.state == "RUNNING":
            self.ran = True
            text = f"Slurm job {self.number} runs on {job.nodes}"
        else:
            return
        if text != self.told:
            self.told = text
            self.writer.emit(Phase(name="waiting" if job.waiting else "running", text=text))

    def pass_on(self, job: Job) -> bool:
        """Ask a running job to save and stop, and cancel one that waits; whether Slurm took it."""
        if job.waiting:
            return ask(["scancel", self.number]).good
        return ask(["scancel", f"--signal={STOP_SIGNAL}", self.number]).good

    def end(self, job: Job) -> int:
        """Say how the job ended, and answer with the exit code that means the same."""
        if self.courier is not None:
            self.courier.carry(last=True)
        if not self.ran and job.nodes and job.state in ("COMPLETED", "FAILED"):  # between two looks
            self.writer.emit(Phase(name="running", text=f"Slurm job {self.number} ran on {job.nodes}"))
        elsewhere.over(self.run, job.state)
        own = self.own_end()  # that of node 0; Slurm's own is the highest of all nodes'
        if own is not None and job.state in ("COMPLETED", "FAILED"):
            job = replace(job, state="COMPLETED" if own == 0 else "FAILED", exit=own, signal=None)
        if (told := how_it_ended(self.number, job)) is not None:
            self.writer.emit(Error(code=told[0], message=told[1]))
            return FAILED
        if job.state == "CANCELLED":
            if not self.asked:
                text = f"Slurm job {self.number} was cancelled from outside (scancel)."
                self.writer.emit(Error(code="slurm_cancelled", message=text))
            return STOPPED
        if job.state == "COMPLETED":
            return DONE
        if own is not None and job.exit == STOPPED:  # else a line of launcher.setup ended like that
            if not self.asked:
                text = f"Slurm job {self.number} was told to stop by Slurm (its time limit, or scancel) and saved."
                self.writer.emit(Warn(code="slurm_stopped", message=text))
            return STOPPED
        if job.signal:
            text = (
                f"Slurm job {self.number} was ended by signal {job.signal} ({signal.strsignal(job.signal)})."
            )
            self.writer.emit(Error(code="killed", message=text))
        return REFUSED if own is not None and job.exit == REFUSED else FAILED

    def own_end(self) -> int | None:
        """How node 0's part of the job ended, if it could write that."""
        try:
            return int(end_of(self.run, self.number, 0).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def carry(self) -> None:
        """Copy what the nodes have told since the last time into the run's events."""
        if self.courier is not None:
            self.courier.carry()

    def _answers(self, well: bool, answer: Answer) -> None:
        """Tell once when Slurm stops answering, and once when it does again."""
        if well and self.silent:
            text = "Slurm answers again."
            self.writer.emit(Warn(code="slurm_answers", level="note", message=text))
        if not well and not self.silent:
            text = f"Slurm does not answer ({answer.words}); its job {self.number} goes on, and we ask again."
            self.writer.emit(Warn(code="slurm_silent", message=text))
        self.silent = not well

    def _lost(self, answer: Answer) -> Job:
        """A job that nobody knows any more: what it left in the run folder says how it ended."""
        from core.runs.checkpoints import is_complete

        if is_complete(self.run.model):
            return Job("COMPLETED", exit=0)
        text = f"Slurm no longer knows job {self.number} ({answer.words}), and it left no finished model."
        self.writer.emit(Error(code="slurm_forgot", message=text))
        return Job("FAILED", exit=FAILED)

    def _sleep(self) -> None:
        """Until the next look; a stop request ends it."""
        young = time.monotonic() - self.began < 60 or not self.ran
        deadline = time.monotonic() + (PAUSE if young else 5 * PAUSE)
        while time.monotonic() < deadline and not (self.asked and not self.silent):
            self.carry()
            time.sleep(CARRY)
        if self.asked:
            self.carry()
            time.sleep(0.5)

    def _on_terminate(self, number: int, frame: object) -> None:
        self.asked = True


def last_seen(number: str) -> Job | None:
    """How a job that left the queue ended: scontrol knows it for some minutes, sacct for good where there is one."""
    answer = ask(["scontrol", "show", "job", "--oneliner", number])
    job = from_scontrol(answer.out) if answer.good else None
    if job is None:
        told = ask(["sacct", "-X", "-n", "-P", "-j", number, "-o", "State,ExitCode,NodeList"])
        job = from_sacct(told.out) if told.good else None
    return job


def end_job(run: Run) -> int:
    """Cancel the run's job if it is not over; 0 when nothing of it is left, 1 with a sentence when that is not sure."""
    number = str(elsewhere.noted(run).get("job"))
    if elsewhere.left(run) is None or not number.isdigit():
        return 0
    courier = Courier(run, group_of(number))  # its follower is gone
    answer, deadline = ask(["scancel", number]), time.monotonic() + GONE
    while time.monotonic() < deadline:
        seen = ask(["squeue", "--noheader", "--jobs", number, "--format", "%T|%r|%N|%P"])
        job = from_squeue(seen.out)
        if (seen.good and (job is None or not job.live)) or "Invalid job id" in seen.err:
            courier.carry(last=True)
            elsewhere.over(run, "CANCELLED")
            return 0
        courier.carry()
        time.sleep(0.5)
    text = f"Slurm job {number} may still be there ({answer.words}); cancel it with: scancel {number}"
    sys.stdout.write(text + "\n")
    return 1


def main(arguments: Sequence[str]) -> int:
    """Follow a run, or with `--end` end it."""
    run = Run(Path(arguments[-1]))
    if arguments[0] == "--end":
        return end_job(run)
    return Follower(run).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
