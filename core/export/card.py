"""Target card: a model card (README.md) that says what was trained, on what, how it went, and how to load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from core.export.base import ExportSpec, Facts
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

VERIFIED = "its metadata as huggingface_hub reads it, its image as an image, and every section it must have"


class Spec(ExportSpec):
    """README.md with data, settings and licence of the base, and the curves as an image."""

    name: Literal["card"] = "card"
    """The target."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """Every run has a card."""
    yield from ()


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export."""
    return 1 << 20


def make(work: Work) -> list[str]:
    """Write the card and its image, and read them back."""
    from core.training.export.card import make_card

    return make_card(work)
