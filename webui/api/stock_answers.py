"""What the REST API answers about data files and models: what there is to train on, and from."""

from __future__ import annotations

from typing import Literal

from webui.api.answers import Answer, FindingAnswer, Json


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
