"""What the REST API answers, as types: the OpenAPI is made from these. Here what all share, this machine, and jobs.

Runs are in run_answers.py, files and models in stock_answers.py, conversations in chat_answers.py.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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
