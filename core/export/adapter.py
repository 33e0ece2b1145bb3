"""Target adapter: the small weights that were learnt, as a peft folder, for whoever has the base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from core.export.base import ExportSpec, Facts
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

VERIFIED = "every tensor, and logits through peft's from_pretrained on the base"


class Spec(ExportSpec):
    """The trained adapter as a peft folder with tokenizer, template and generation config."""

    name: Literal["adapter"] = "adapter"
    """The target."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """A run without an adapter has none to give."""
    if not facts.adapter:
        yield Finding(
            "export_without_adapter",
            f"The method {facts.method} trains the model's own weights, so there is no adapter; export it as merged.",
            value=facts.method,
        )


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export: what was trained, in fp32."""
    return 4 * trained


def make(work: Work) -> list[str]:
    """Write the adapter and have it read back."""
    from core.training.export.peft_folder import make_adapter

    return make_adapter(work)
