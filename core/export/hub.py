"""Target hub: a repository on the Hugging Face hub, or the very folder that would be uploaded (a dry run)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from core.export import adapter, gguf, merged
from core.export.base import ExportSpec, Facts
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

Repo = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$",
        json_schema_extra={"shape": "org/name"},
    ),
]
VERIFIED = "as its content; after an upload, every file's name and size as the hub tells them"


class Spec(ExportSpec):
    """The model, its card and curves, pushed to a repository with the token of the environment (HF_TOKEN)."""

    name: Literal["hub"] = "hub"
    """The target."""
    repo: Repo | None = None
    """The repository, made when it is not there. Empty: a dry run, which leaves the folder that would be uploaded."""
    content: Literal["merged", "adapter", "gguf"] = "merged"
    """What is pushed."""
    dtype: merged.Dtype = "auto"
    """Precision of merged weights; auto is that of the base."""
    quant: gguf.Quant = "q8_0"
    """Precision of a gguf file."""
    private: bool = True
    """Whether a new repository can be seen by its owner only."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """What its content refuses, and a push without a token."""
    if spec.content == "adapter":
        yield from adapter.refusals(adapter.Spec(), facts)
    elif spec.content == "gguf":
        yield from gguf.refusals(gguf.Spec(quant=spec.quant), facts)
    if spec.repo is not None and not facts.hub_token:
        yield Finding(
            "hub_token_missing",
            f"A push to {spec.repo!r} needs a token in the environment variable HF_TOKEN, which is not set; set it, "
            "or leave repo empty for a dry run.",
            field="repo",
            value=spec.repo,
        )


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export."""
    if spec.content == "adapter":
        return adapter.size(adapter.Spec(), weights, trained)
    if spec.content == "gguf":
        return gguf.size(gguf.Spec(quant=spec.quant), weights, trained)
    return merged.size(merged.Spec(dtype=spec.dtype), weights, trained)


def make(work: Work) -> list[str]:
    """Make the content and its card, verify them, and push what was verified."""
    from core.training.export.hub_repo import make_hub

    return make_hub(work)
