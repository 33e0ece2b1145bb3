"""How a run ended, in a plain sentence, from the exit of its training process and what it said. Stdlib only."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.reasons import because
from core.runs.storage import is_full, tail

STOPPED = 3
"""Exit code of a training process that saved and stopped because it was asked to."""


@dataclass
class Said:
    """What the training process told through its events in this attempt, as far as the supervisor needs it."""

    ready: bool = False
    done: bool = False
    step: int | None = None
    total_steps: int | None = None
    error: str | None = None
    code: str | None = None
    """Code of that error."""
    params: dict[str, Any] = field(default_factory=dict)
    """What its sentence names."""
    values: dict[str, Any] = field(default_factory=dict)
    longest_step: float = 0.0
    """Seconds."""
    last_save: float = 0.0
    """Seconds."""
    _mono: dict[str, float] = field(default_factory=dict)
    """By machine (core.runs.courier): each counts from its own start."""

    def hear(self, record: Mapping[str, Any]) -> None:
        """Take in one record of events.jsonl."""
        kind, now = record.get("event"), record.get("mono")
        machine = str((record.get("carried") or [""])[0])
        before = self._mono.get(machine)
        since = now - before if isinstance(now, float) and before is not None else 0.0
        if kind == "ready":
            self.ready = True
        elif kind == "done":
            self.done = True
            self.values = record.get("values") or {}
        elif kind == "error" and (self.code == "rank_lost" or str(record.get("code")).startswith("node_")):
            # Another node's end explains what this one's training said when it lost it, and may come later.
            self._blame(record)
        elif kind == "error" and not self.error:
            self._blame(record)
        elif kind == "start":
            self.total_steps = record.get("total_steps")
        elif kind == "metric" and isinstance(record.get("step"), int):
            steps = record["step"] - (self.step or 0)
            if before is not None and steps > 0:
                self.longest_step = max(self.longest_step, since / steps)
            self.step = record["step"]
        elif kind == "checkpoint":
            self.last_save = record.get("seconds") or since
        if isinstance(now, float) and kind != "state":
            self._mono[machine] = now

    def _blame(self, record: Mapping[str, Any]) -> None:
        self.code, self.error = record.get("code"), record.get("message")
        self.params = {
            **(record.get("params") or {}),
            "field": record.get("field"),
            "value": record.get("value"),
        }

    def reason(self, start: str = "") -> str | None:
        """What it said as the reason of its end; `start` stands before it."""
        if self.error is None or self.code is None:
            return self.error and start + self.error
        return because(self.code, start + self.error, **self.params)

    def grace(self) -> float:
        """Seconds a stop may take before it is enforced: time for the step that runs and for a save, well measured."""
        return max(60.0, 3 * self.longest_step + 2 * self.last_save)


@dataclass(frozen=True)
class Exit:
    """How the training process ended."""

    code: int
    """Exit code, or minus the signal."""
    peak: int
    """Most memory it held at once, bytes."""
    oom_kills: int
    """Processes the kernel killed for memory on this machine while it ran."""

    @property
    def signal(self) -> int | None:
        """The signal that ended it, if one did."""
        return -self.code if self.code < 0 else None


def judge(run: Run, exit: Exit, said: Said, *, asked: bool, forced: bool) -> tuple[str, str | None]:
    """The final state and its reason. Success needs exit 0, a done event and a committed model, all three."""
    if exit.code == 0:
        if said.done and checkpoints.is_complete(run.model):
            return "succeeded", None
        see = f"see `factory logs {run.id}`"
        if not said.done:
            text = f"the training process ended without saying that it was done; {see}"
            return "failed", because("ended_unsaid", text, id=run.id)
        text = f"the training process ended but its model folder is not whole; {see}"
        return "failed", because("model_not_whole", text, id=run.id)
    if asked and (exit.code in (STOPPED, -signal.SIGTERM) or (forced and exit.code == -signal.SIGKILL)):
        late = because("stopped_late", "killed, as it had not stopped in time")
        return "stopped", late if forced else None
    if exit.code == STOPPED:
        told = because("told_to_stop", "a signal told its training process to stop")
        return "stopped", said.reason() or told
    if exit.signal is not None:
        return "failed", signal_sentence(exit)
    start = "" if said.ready else "it did not start: "
    if said.error is None and is_full(run.path):  # too full to say so
        text = f"the disk under {run.path} is full: make room, then `factory resume {run.id}`"
        return "failed", because("disk_full", text, value=str(run.path))
    if said.error:
        return "failed", said.reason(start)
    if words := _last_words(run):
        return "failed", start + words
    text = f"{start}the training process ended with exit code {exit.code}"
    return "failed", because("ended_with", text, value=exit.code)


def fault_of(run: Run, exit: Exit, said: Said, state: str) -> str | None:
    """The code of what ended a failed run, for core.job.advice; None when nothing is known."""
    if state != "failed":
        return None
    if exit.signal is not None:
        hungry = exit.signal == signal.SIGKILL and (exit.oom_kills or exit.peak > memory_limit() / 2)
        return "out_of_memory" if hungry else "killed"
    return said.code or ("disk_full" if is_full(run.path) else None)


def memory_limit() -> int:
    """Bytes of memory this process may use: the machine's, or its container's if that is less."""
    limits = [_number(Path(path)) for path in CGROUP_LIMITS]
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            limits.append(int(line.split()[1]) * 1024)
    return min((limit for limit in limits if limit), default=0)


def oom_kills() -> int:
    """How many processes this kernel has killed for want of memory since it booted."""
    for line in _text(Path("/proc/vmstat")).splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


SLURM = ("srun: ", "slurmstepd: ")
"""What Slurm writes behind a training's last words."""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def signal_sentence(exit: Exit) -> str:
    """How a signal ended a process, as the end of a sentence."""
    number = -exit.code
    limit = memory_limit()
    peak, most = f"{exit.peak / 2**30:.1f} GiB", f"{limit / 2**30:.0f}"
    memory = f"peak {peak} of {most}"
    if number == signal.SIGKILL:
        if exit.oom_kills or exit.peak > limit / 2:
            text = f"killed by signal 9, most likely out of memory: {memory}"
            return because("killed_for_memory", text, peak=peak, limit=f"{most} GiB")
        text = f"killed by signal 9, by someone or for want of memory ({memory})"
        return because("killed_by_someone", text, peak=peak, limit=f"{most} GiB")
    names = {signal.SIGSEGV: "a crash in native code", signal.SIGBUS: "a bad memory access, or a full disk"}
    names |= {signal.SIGABRT: "an abort in native code", signal.SIGXFSZ: "a file grew over its limit"}
    why = f", {names[signal.Signals(number)]}" if number in names else ""
    text = f"killed by signal {number} ({signal.strsignal(number)}){why}"
    return because("killed_by_signal", text, value=number, name=_signal_name(number))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _last_words(run: Run) -> str | None:
    try:
        lines = [line.strip() for line in tail(run.log, 20).splitlines()]
    except OSError:
        return None
    return next((line[:300] for line in reversed(lines) if line and not line.startswith(SLURM)), None)


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
