"""Target merged: one whole model that needs nothing of Factory, as transformers' from_pretrained reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from core.export.base import ExportSpec, Facts
from core.job.base import unit
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

VERIFIED = "every tensor, and logits through transformers' from_pretrained"
Dtype = Literal["auto", "fp32", "bf16", "fp16"]


class Spec(ExportSpec):
    """The whole model as safetensors: an adapter merged into its unquantised base, or the trained weights."""

    name: Literal["merged"] = "merged"
    """The target."""
    dtype: Dtype = "auto"
    """Precision of the weights; auto is that of the base."""
    shard_size: float = Field(5.0, gt=0, le=1000, json_schema_extra=unit("GB"))
    """Largest weights file; a larger model is split into several."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """Every run can become a whole model."""
    yield from ()


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export."""
    return weights * (2 if spec.dtype in ("bf16", "fp16") else 4)


def make(work: Work) -> list[str]:
    """Merge, write, and have it read back."""
    from core.training.export.merged_folder import make_merged

    return make_merged(work)
