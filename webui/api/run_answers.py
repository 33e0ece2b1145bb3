"""What the REST API answers about runs, what they measured, and what they became."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webui.api.answers import Answer, Json


class RunRow(Answer):
    """One run in the list."""

    id: str
    title: str = ""
    tags: list[str] = []
    note: str = ""
    name: str | None = None
    stage: str | None = None
    method: str | None = None
    model: str | None = None
    data: str | None = None
    state: str
    reason: str | None = None
    """Why it is in this state, in English."""
    why: Json | None = None
    """Code and params of the reason, by which it is told in other languages."""
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    eval_loss: float | None = None
    tokens_per_second: float | None = None
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    duration: float | None = None
    """Seconds since the start, or from start to end."""
    left_seconds: float | None = None
    place: int | None = None
    """Place in the queue, 1 is next."""
    attempt: int = 1
    checkpoint: str | None = None
    orphans: bool = False
    user: str | None = None
    slots: list[str] = []
    path: str = ""
    card: Json | None = None
    """What to try, when the run failed, is lost or waits long."""


class RunRows(Answer):
    """All runs, newest first."""

    runs: list[RunRow]


class CheckpointAnswer(Answer):
    """One whole checkpoint on the disk."""

    step: int
    path: str
    bytes: int
    eval_loss: float | None = None
    best: bool = False
    pinned: bool = False


class PinAnswer(Answer):
    """Whether a checkpoint is kept for good."""

    step: int
    pinned: bool


class RunDetail(RunRow):
    """Everything about one run that is not an event."""

    yaml: str
    """job.yaml as it was written."""
    job: Json
    plan: Json
    defaults_changed: Json
    """Dotted fields the user set to something else than their default."""
    checkpoints: list[CheckpointAnswer]
    follow_offset: int
    """Byte offset behind the last event: a stream that begins here misses nothing."""
    log_size: int
    bytes: int
    """What the whole run folder takes."""
    files: list[Json]
    """What can be downloaded: name, bytes."""
    grace_until: float | None = None
    """Wall clock at which a stop is enforced."""
    model_bytes: int | None = None
    """The delivered model; null before it is whole."""


class RunAnswer(Answer):
    """A run that something was done to."""

    run: RunRow


class Ended(Answer):
    """How many processes were ended."""

    run: RunRow
    ended: int


class Deleted(Answer):
    """What was moved to the trash; bytes are freed when the trash is emptied."""

    id: str
    bytes: int
    trash: str


class Events(Answer):
    """Events with the byte offset behind each (`end`), and the offset to go on from."""

    events: list[Json]
    next: int
    over: bool
    """The run is over and these are its last events."""


class Metrics(Answer):
    """Series by name: two lists, steps and values, thinned so that no peak is lost."""

    series: dict[str, list[list[float]]]
    next: int
    """Byte offset of the events these numbers go up to."""
    total: int
    """Metrics read before thinning."""


class LogPage(Answer):
    """Whole lines of a log, without escape sequences, and the bytes they stand at."""

    from_: int = Field(alias="from")
    to: int
    size: int
    lines: list[str]


class Compared(Answer):
    """Several runs beside each other."""

    runs: list[RunRow]
    differing: list[Json]
    """Settings that differ: key, values by run."""
    same_count: int
    same: Json
    final: dict[str, Json]
    """Last value of each metric, by metric and run."""
    samples: list[Json]
    """Prompts that more than one run answered: prompt, answers by run."""


class ResultAnswer(Answer):
    """The result card; null before the model is whole."""

    result: Json | None


class ExportRecord(Answer):
    """One export of a run."""

    name: str
    state: Literal["starting", "running", "done", "failed", "cancelled"]
    target: str | None = None
    spec: Json | None = None
    phase: str | None = None
    share: float | None = None
    """How much of the work is behind it, 0 to 1."""
    started: float | None = None
    ended: float | None = None
    bytes: int | None = None
    path: str | None = None
    verified_by: list[str] | None = None
    """What was verified and by whom, in sentences."""
    notes: list[str] | None = None
    error: Json | None = None


class ExportTarget(Answer):
    """Something that a run can become."""

    name: str
    about: str
    refused: str | None = None
    """Why this run cannot."""


class Exports(Answer):
    """The exports of a run, and what it can become."""

    exports: list[ExportRecord]
    targets: list[ExportTarget]


class ExportAnswer(Answer):
    """One export."""

    export: ExportRecord


class ExportRemoved(Answer):
    """A deleted export and the bytes it freed."""

    name: str
    bytes: int
