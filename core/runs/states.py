"""The states of a run, which may follow which, and how a reader tells a live run from a lost one. Stdlib only.

state.json is written by the launcher (queued) and by the supervisor that holds the run's lock. `lost` is never
written: it is what a reader concludes from a state that is no end and a lock that nobody holds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.runs import checkpoints, elsewhere
from core.runs.folder import Run
from core.runs.identity import user_name
from core.runs.journal import Journal, parse
from core.runs.locks import is_held
from core.runs.reasons import because, told_of
from core.runs.storage import FULL, give_up_reserve, read_json, tail, write_json

VERSION = 1
ENDS = ("stopped", "succeeded", "failed")
_SAID = {"stopped": "was stopped", "succeeded": "has succeeded", "failed": "has failed"}
FOLLOWS: dict[str | None, tuple[str, ...]] = {
    None: ("queued",),
    "queued": ("starting", "stopped", "failed"),
    "starting": ("running", "stopping", "stopped", "failed"),
    "running": ("stopping", "stopped", "succeeded", "failed"),
    "stopping": ("stopped", "succeeded", "failed"),
    "stopped": ("queued",),
    "succeeded": ("queued",),
    "failed": ("queued",),
    "lost": ("queued",),
}
"""Which state may follow which. From an end, `queued` begins the next attempt."""


@dataclass(frozen=True)
class Status:
    """What a run is doing, as far as its folder and the kernel can tell."""

    run: Run
    state: str
    record: Mapping[str, Any] = field(default_factory=dict)
    """The content of state.json."""
    orphans: bool = False
    """The supervisor is gone, but processes of the run live on."""
    readable: bool = True

    @property
    def over(self) -> bool:
        """Nothing will happen any more without a new attempt."""
        return self.state in (*ENDS, "lost")

    @property
    def words(self) -> str:
        """The state behind the name of the run, for sentences: `is running`, `has succeeded`."""
        return _SAID.get(self.state, f"is {self.state}")

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return int(self.record.get("attempt", 1))

    @property
    def fault(self) -> str | None:
        """Code of what ended it (core.job.advice has a card for most), when it failed or is lost."""
        if self.state == "lost":
            return "lost"
        code: str | None = self.record.get("fault") if self.state == "failed" else None
        return code

    @property
    def reason(self) -> str | None:
        """Why it is in this state, as a sentence, when there is something to say."""
        if self.state != "lost":
            reason: str | None = self.record.get("reason")
            return reason
        if not self.readable:
            return because("state_unreadable", "state.json is missing or damaged")
        if self.orphans:
            text = "its supervisor was killed and processes of it live on: `factory stop` ends them"
            return because("orphans_live", text)
        state = self.record["state"]
        text = f"its supervisor was killed or the machine went down while it was {state}"
        return because("supervisor_gone", text, state=state)

    @property
    def why(self) -> dict[str, Any] | None:
        """Code and params of the reason, where it has some."""
        return told_of(self.reason) if self.state == "lost" else self.record.get("why")


def read_status(run: Run) -> Status:
    """The state of a run; `lost` when it is no end and nobody holds the lock. Raises OSError."""
    record = _read(run)
    if record.get("state") in ENDS:
        return Status(run, record["state"], record)
    if is_held(run.lock):
        return Status(run, record.get("state", "queued"), record)
    record = _read(run)  # the supervisor may have ended between the two looks
    if record.get("state") in ENDS:
        return Status(run, record["state"], record)
    return Status(
        run,
        "lost",
        record,
        orphans=is_held(run.alive) or bool(elsewhere.left(run)),
        readable="state" in record,
    )


def new_record(run: Run, job: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a run that its list shows, before anything happened."""
    stage = job.get("stage")
    return {
        "version": VERSION,
        "id": run.id,
        "name": job.get("name"),
        "stage": stage.get("name") if isinstance(stage, Mapping) else stage,
        "user": user_name(),
        "boot_id": boot_id(),
        "created": round(time.time(), 3),
        "total_steps": plan.get("steps"),
        "state": None,
        "attempt": 0,
    }


def boot_id() -> str | None:
    """The kernel's id of this boot; None where there is none (not Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


class Book:
    """The one writer of a run's state, for whoever holds the run's lock: state.json and the state events."""

    def __init__(self, run: Run, record: Mapping[str, Any]) -> None:
        self.run = run
        self.record = dict(record)
        self.journal = Journal(run.events)

    @property
    def state(self) -> str | None:
        """The state last written."""
        state: str | None = self.record["state"]
        return state

    def enter(self, state: str, reason: str | None = None, **facts: Any) -> None:
        """Go to `state` with these facts. Raises OSError when even the reserve does not make room for it."""
        assert state in FOLLOWS[self.state], f"{self.state} -> {state}"
        now = round(time.time(), 3)
        since = {"since": now, "mono": round(time.monotonic(), 3)}
        why = told_of(reason)
        self.record |= {"state": state, "reason": reason, "why": why, **since, **facts}
        event = {"event": "state", "state": state, "attempt": self.record["attempt"], "reason": reason}
        event |= why or {}
        self._making_room(lambda: self.journal.append(event, must=True))
        self.save()

    def save(self) -> None:
        """Write state.json as it stands."""
        self._making_room(lambda: write_json(self.run.state_json, self.record))

    def warn(self, code: str, message: str, level: str = "warning") -> None:
        """Tell followers of the run something worth knowing."""
        self.journal.append({"event": "warning", "code": code, "message": message, "level": level})

    def _making_room(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if error.errno not in FULL or not give_up_reserve(self.run.path):
                raise
            write()


def last_step(run: Run) -> int | None:
    """The step of the newest metric, from the end of the events; None before the first."""
    try:
        text = tail(run.events, 200, most=1 << 16)
    except FileNotFoundError:
        return None
    for line in reversed(text.splitlines()):
        record = parse(line.encode())
        if record is not None and record.get("event") == "metric":
            step: int | None = record.get("step")
            return step
    return None


def last_checkpoint(run: Run) -> str | None:
    """The newest whole checkpoint, relative to the run folder, or None."""
    newest = checkpoints.newest_complete(run)
    return newest.relative_to(run.path).as_posix() if newest else None


def _read(run: Run) -> dict[str, Any]:
    try:
        record = read_json(run.state_json)
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return record if isinstance(record, dict) else {}
