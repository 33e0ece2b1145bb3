"""The data part of a job: which files, how they are read, what is held out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from core.job.base import Revision, Spec, unit

Text = Annotated[str, Field(min_length=1, max_length=4096)]
_LETTERS = {"shape": "letters, digits, dots, dashes and underscores"}
HubName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", json_schema_extra=_LETTERS)]
Encoding = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$", json_schema_extra={"shape": "the form utf-8 or gb18030"}),
]


class SourceSpec(Spec):
    """One place rows come from. A bare path is short for {path: ...}."""

    path: Text | None = None
    """A file, a folder, a glob, hub:org/name, or gym:task?size=500 for made-up tasks. The format is found from the
    content."""
    registry: Text | None = None
    """A dataset_info.json of LLaMA-Factory instead of a path; `name` picks its entry."""
    name: Text | None = None
    """The entry of the registry."""
    split: HubName = "train"
    """Split of a hub data set."""
    subset: HubName | None = None
    """Subset (configuration) of a hub data set."""
    revision: Revision | None = None
    """Branch, tag or commit of a hub data set."""
    format: Annotated[str, Field(max_length=64)] | None = None
    """Name of the format; empty finds it (`factory data formats` lists them)."""
    columns: dict[str, str] = Field({}, max_length=64)
    """Our word -> the file's column, for columns that are not found by themselves; the others stay as detected."""
    encoding: Encoding | None = None
    """Text encoding; empty finds it."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Character between the cells of a table; empty finds it."""
    sheet: Annotated[str, Field(max_length=100)] | None = None
    """Sheet of a workbook; empty takes the first with a table."""
    take: int | None = Field(None, ge=1, json_schema_extra=unit("rows"))
    """Only the first so many good rows."""
    weight: float = Field(1.0, gt=0, le=1000)
    """How often the rows are used: 2 twice, 0.5 every second one."""


class DataSpec(SourceSpec):
    """The rows to learn from: one source, or several under `sources`."""

    sources: list[SourceSpec] = Field([], max_length=1000)
    """Several sources, each with its own settings; they are mixed by weight and the mix is reported."""
    eval: float | Text | None = None
    """Held-out rows: a share of the data (0.05), or a file of their own."""
    pairs: Literal["best_vs_worst", "all"] = "best_vs_worst"
    """Which pairs are made of more than two ranked answers."""
    labels: dict[str, bool] = Field({}, max_length=64)
    """What the words of a label column mean, where it is not clear: {helpful: true, useless: false}."""
    score: Annotated[str, Field(max_length=256)] | None = None
    """Score column that decides, where there are several."""
    threshold: float | None = None
    """Scores from here on count as good (labels); answers below are left out (fine-tuning)."""
    instruction: Annotated[str, Field(max_length=4096)] | None = None
    """A line before each text of a plain pair (Translate into English:)."""
    keep: list[str] = Field([], max_length=64)
    """Columns handed to the reward functions beside prompt and answer."""
    separator: Annotated[str, Field(max_length=32)] = "\n"
    """Text between an instruction and its input."""
    context: Literal["first", "last"] = "first"
    """Whether a context stands before or after its question."""
    documents: Literal["file", "paragraph", "line"] = "file"
    """What one document of a text file is."""
    turns: Literal["merge", "keep", "drop"] = "merge"
    """Several turns of one role in a row: merged, kept as they are, or the row dropped."""
    wrap: Literal["chat", "plain"] | None = None
    """Texts as chat turns or plainly one after another. Empty: prompt-completion rows plain, pairs and labels as chat
    where the model has a template."""
    one_per_turn: bool = False
    """Make one sample of each assistant turn, so that each keeps its own reasoning."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Rows that repeat an earlier row."""
    too_long: Literal["cut", "drop"] = "cut"
    """Rows longer than max_length: cut at the end or left out; both are counted."""

    @model_validator(mode="after")
    def _one_way_to_name_data(self) -> DataSpec:
        given = [bool(self.path), bool(self.registry), bool(self.sources)]
        if sum(given) != 1:
            raise ValueError("name the data once: path, registry with name, or sources")
        if isinstance(self.eval, float) and not 0 < self.eval < 1:
            raise ValueError("eval is a share between 0 and 1 (0.05), or a path")
        return self


def expand_data(value: Any) -> Any:
    """The long form of the shorthands `data: path` and `data: [path, path]`."""
    if isinstance(value, str):
        return {"path": value}
    if isinstance(value, list):
        return {"sources": [{"path": one} if isinstance(one, str) else one for one in value]}
    if isinstance(value, dict) and isinstance(value.get("sources"), list):
        return {
            **value,
            "sources": [{"path": one} if isinstance(one, str) else one for one in value["sources"]],
        }
    return value
