"""What the REST API answers, as types: the OpenAPI is made from these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]


class Answer(BaseModel):
    """The base of every answer. Fields that core adds later pass through."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


class FindingAnswer(Answer):
    """One thing that is wrong or notable: a stable code, field, value, sentence, and a fix if there is one."""

    code: str
    params: Json = {}
    level: Literal["error", "warning", "note"] = "error"
    field: str | None = None
    value: Any = None
    message: str
    fix: Json | None = None


class ErrorDetail(Answer):
    """What was refused and why, in a sentence."""

    code: str
    message: str
    field: str | None = None
    value: Any = None
    todo: Json | None = None
    """Dotted fields with the values that would settle it."""
    findings: list[FindingAnswer] = []


class ErrorAnswer(Answer):
    """The one form of every refusal."""

    error: ErrorDetail


class Health(Answer):
    """The server is up."""

    ok: bool


class Features(Answer):
    """Which parts of the board this installation has."""

    chat: bool
    export: bool
    serve: bool


class Load(Answer):
    """How busy the machine is; memory in bytes, percent of all cores together."""

    cpu_percent: float
    memory_used: int
    memory: int
    disk: int
    """Of the file system that the home is on."""
    disk_free: int
    gpus: list[Json] = []
    """Per GPU: index, busy (percent), memory_used, memory (bytes)."""
    per_run: dict[str, Json] = {}
    """Per live run: cpu_percent (of one core), memory (bytes)."""


class MachineAnswer(Answer):
    """The machine as training will find it; memory and disk in bytes."""

    text: str
    cpus: int
    memory: int
    memory_free: int
    disk_free: int | None
    gpus: list[Json]
    gpu_problem: str | None
    system: str
    python: str
    factory: str
    home: str
    versions: dict[str, str | None]
    load: Load
    slots: list[Json]
    """The devices runs can take, and who has them."""


class Recipe(Answer):
    """A ready job."""

    name: str
    title: str
    about: str
    needs: str
    stage: str
    method: str
    model: str
    hardware: str
    yaml: str


class Recipes(Answer):
    """All ready jobs."""

    recipes: list[Recipe]


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


class Checked(Answer):
    """What the checks say about a job."""

    ok: bool
    findings: list[FindingAnswer]
    job: Json | None = None
    """The job as it was understood, short forms made long; null when it was no job at all."""


class Planned(Answer):
    """What a job would do."""

    findings: list[FindingAnswer]
    plan: Json | None


class Fixed(Answer):
    """A job's text with fixes applied."""

    yaml: str
    changed: list[Json]
    """Each change: field, value, code of the finding."""


class Copied(Answer):
    """The job of a run, to be started anew."""

    yaml: str
    run: str


class DataFile(Answer):
    """A file of the data folder."""

    name: str
    bytes: int
    changed: float
    path: str
    """What a job's data.path says to mean it."""


class DataFiles(Answer):
    """The data folder, and how much more it takes."""

    files: list[DataFile]
    samples: list[DataFile]
    """Small data sets that come with Factory."""
    folder: str
    used: int
    quota: int


class Uploaded(Answer):
    """A file that was taken in."""

    file: DataFile
    report: Json | None
    """What it holds, as `factory data inspect` tells; null when it could not be read."""
    findings: list[FindingAnswer]


class Inspected(Answer):
    """What data holds, as `factory data inspect --json` tells."""

    format: str
    columns: Json
    read: int
    kept: int
    lengths: Json
    stages: Json
    findings: list[FindingAnswer]


class RowsAnswer(Answer):
    """Rows in the words that every stage speaks."""

    rows: list[Json]


class Previewed(Answer):
    """Rows as training gets them: {line, row, sequences: [{name, text, tokens: [{id, text, mask}], length}]}."""

    rows: list[Json]
    findings: list[FindingAnswer]


class ModelRow(Answer):
    """A model on this machine."""

    id: str
    name: str
    kind: Literal["base", "adapter", "result"]
    where: str
    """What a job's model.name (or model.adapter) says to mean it."""
    bytes: int
    from_run: str | None = None
    base: str | None = None
    created: float | None = None
    deletable: bool


class Models(Answer):
    """All models on this machine."""

    models: list[ModelRow]


class ChatSpeaker(Answer):
    """Somebody who can be talked to."""

    key: str
    title: str
    kind: Literal["run", "model"]
    run: str | None
    finished: bool
    """Whether there is a finished model; else the newest checkpoint is meant."""
    checkpoints: list[int]
    base: str | None
    """Key of the model it came from."""
    base_title: str | None
    about: str


class ChatSpeakers(Answer):
    """Everybody who can be talked to."""

    speakers: list[ChatSpeaker]


class ChatState(Answer):
    """What lies in memory, and the settings of an answer."""

    loaded: list[Json]
    """Per set of weights: weights, speakers, memory (bytes), busy, unloads_in (seconds), device, dtype, parameters."""
    note: str | None
    """A sentence when a training goes first."""
    settings: list[Json]
    """Name, help, type, minimum, maximum, default, and what holds where neither user nor model says (else)."""


class ChatLoaded(Answer):
    """A model that can answer now."""

    speaker: str
    title: str
    seconds: float
    context: int | None
    template: bool
    device: str
    dtype: str
    parameters: int


class ChatUnloaded(Answer):
    """How many sets of weights were freed."""

    unloaded: int


class ChatRendered(Answer):
    """A conversation as the model reads it."""

    text: str
    count: int
    """Tokens."""
    tokens: list[list[Any]]
    """Text of each token, and whether it is a special one."""


class ChatStopped(Answer):
    """Whether there was an answer to stop."""

    stopped: bool


class ChatFeedback(Answer):
    """Where the rows went: file, path, rows that are there now."""

    saved: list[Json]


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


class ResultAnswer(Answer):
    """The result card; null before the model is whole."""

    result: Json | None
