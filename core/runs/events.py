"""What happens in a run, as typed events: one JSON object a line in events.jsonl.

Two processes write: the supervisor (state) and the training process (all others). The order is the byte
offset, and readers go on from one. `t` is the wall clock, for people only; durations come from `mono`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from core.runs.journal import Journal, Line, parse, read_lines
from core.runs.storage import FULL, give_up_reserve

StateName = Literal["queued", "starting", "running", "stopping", "stopped", "succeeded", "failed", "lost"]


class Event(BaseModel):
    """One thing that happened. Unknown keys are ignored, so that older readers read newer runs."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    event: str
    """What sort of event."""
    t: float = 0.0
    """Wall clock, seconds since 1970; set when written."""
    mono: float = 0.0
    """Monotonic seconds since boot; set when written."""
    end: int = Field(0, exclude=True)
    """Offset just behind this event in its file: a reader that had it goes on from here. Not written."""


class State(Event):
    """The run changed its state."""

    event: Literal["state"] = "state"
    state: StateName
    attempt: int = 1
    reason: str | None = None
    """Why, in a sentence, when the state is an end or a wait."""
    code: str | None = None
    """The reason's stable code, by which it is told in other languages."""
    params: dict[str, Any] = {}
    """What that sentence names."""


class Ready(Event):
    """The training process listens: a stop request from now on saves first."""

    event: Literal["ready"] = "ready"
    pid: int | None = None


class Phase(Event):
    """The training process turned to something else (loading, preparing, training, saving ...)."""

    event: Literal["phase"] = "phase"
    name: str
    text: str = ""


class Start(Event):
    """The steps begin: how many, over what, on what."""

    event: Literal["start"] = "start"
    total_steps: int
    rows: int
    """Training sequences per epoch."""
    trainable: int
    """Weights that move."""
    parameters: int
    """All weights."""
    device: str


class Metric(Event):
    """Numbers of a step. Values that are no number (NaN, infinity) are moved to `not_finite` by name."""

    event: Literal["metric"] = "metric"
    step: int
    epoch: float | None = None
    values: dict[str, float] = {}
    not_finite: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _set_aside_what_is_not_finite(cls, given: Any) -> Any:
        values = given.get("values") if isinstance(given, dict) else None
        if not isinstance(values, dict):
            return given
        bad = [
            name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)
        ]
        good = {name: value for name, value in values.items() if name not in bad}
        return {**given, "values": good, "not_finite": [*given.get("not_finite", []), *bad]}


class Sample(Event):
    """An answer of the model, to see what training changes."""

    event: Literal["sample"] = "sample"
    step: int
    prompt: str
    answer: str
    kind: str = "during"
    """When it was asked: before, during or after training."""
    scores: dict[str, float] = {}
    """What each reward gave, where there are rewards."""


class Checkpoint(Event):
    """A checkpoint is whole on the disk."""

    event: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    """Relative to the run folder."""
    bytes: int = 0
    seconds: float | None = None
    """How long writing it took."""


class Warn(Event):
    """Something worth knowing that does not end the run."""

    event: Literal["warning"] = "warning"
    level: str = "warning"
    """warning or note."""
    code: str
    message: str
    field: str | None = None


class Error(Event):
    """What ended the run."""

    event: Literal["error"] = "error"
    code: str
    message: str
    field: str | None = None
    value: Any = None
    params: dict[str, Any] = {}
    """What its sentence names, for other languages."""
    advice: dict[str, Any] | None = None
    """The error card: cause, setting, change, command, changes."""


class Result(Event):
    """What training changed, in one number: before and after."""

    event: Literal["result"] = "result"
    name: str
    """eval_loss, loss or reward."""
    before: float | None = None
    after: float | None = None
    rows: int | None = None
    """How many rows were held out."""
    held_out: bool = False
    """Whether both numbers are of the same held-out rows; else they are the first and the last record of training."""


class Done(Event):
    """Training is over and the model folder is whole."""

    event: Literal["done"] = "done"
    model: str
    """Relative to the run folder."""
    values: dict[str, float] = {}


AnyEvent = Annotated[
    State | Ready | Phase | Start | Metric | Sample | Checkpoint | Warn | Error | Result | Done,
    Field(discriminator="event"),
]
_ANY: TypeAdapter[Any] = TypeAdapter(AnyEvent)
MUST_LAST = ("state", "checkpoint", "error", "done")
"""Kinds that are synced to the disk at once, and whose loss is an error."""


class EventWriter:
    """Appends events to a file, one write each; any number of writers may share the file."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._folder = path.parent

    def emit(self, event: Event) -> None:
        """Write one event. Raises OSError when a state, checkpoint, error or done cannot be written.

        On a full disk other events are dropped and counted; a later warning tells how many.
        """
        record = event.model_dump(exclude={"t", "mono"}, exclude_none=True)
        must = event.event in MUST_LAST
        try:
            self._journal.append(record, must=must)
        except OSError as error:
            if error.errno not in FULL or not give_up_reserve(self._folder):
                raise
            self._journal.append(record, must=must)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._journal.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path, offset: int = 0) -> tuple[list[Any], int]:
    """The events from byte `offset` on and the offset to go on from; a torn last line is left for later.

    A line that is no event becomes a `warning` event with code `unreadable_event`; a kind this version does
    not know is passed over. A missing file has no events.
    """
    lines, end = read_lines(path, offset)
    return [event for line in lines if (event := _event(line)) is not None], end


def follow(path: Path, offset: int, ended: Callable[[], bool], pause: float = 0.2) -> Iterator[Any]:
    """Events as they come, from byte `offset` on, until `ended()` is true and all before that was given.

    Yields None when there is nothing new, so that the caller may redraw. `pause` is in seconds.
    """
    while True:
        over = ended()  # asked before reading, or the last events could be missed
        while True:
            events, reached = read_events(path, offset)
            yield from events
            if reached == offset:
                break
            offset = reached
        if over:
            return
        yield None
        time.sleep(pause)


def _event(line: Line) -> Any:
    if not line.content.strip():
        return None
    record = parse(line.content)
    if record is None:
        return _unreadable(line)
    if record.get("event") not in KINDS and isinstance(record.get("event"), str):
        return None
    try:
        return _ANY.validate_python({**record, "end": line.end})
    except ValidationError:
        return _unreadable(line)


def _unreadable(line: Line) -> Warn:
    text = f"The event before byte {line.end} cannot be read (torn or damaged) and is left out."
    return Warn(code="unreadable_event", message=text, end=line.end)


KINDS = frozenset(
    {
        "state",
        "ready",
        "phase",
        "start",
        "metric",
        "sample",
        "checkpoint",
        "warning",
        "error",
        "result",
        "done",
    }
)
