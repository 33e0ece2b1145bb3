"""Target gguf: one file for llama.cpp and what is built on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from core.export.base import ExportSpec, Facts, gguf_refusals
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

VERIFIED = (
    "every tensor, and logits through transformers' GGUF reader and, where it is installed, llama-cpp-python"
)
Quant = Literal["f16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q3_k_m", "q2_k"]
PLAIN = ("f16", "q8_0")
"""Quants made by the package gguf; the others are llama.cpp's own work."""
BITS = {"f16": 16, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q5_k_s": 5.6}
"""Bits of a weight, for a guess of the size; what is not listed is taken as 5."""


class Spec(ExportSpec):
    """One GGUF file with weights, tokenizer and chat template."""

    name: Literal["gguf"] = "gguf"
    """The target."""
    quant: Quant = "q8_0"
    """Precision of the weights. f16 and q8_0 are always there; the k-quants need the package llama-cpp-python."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """What llama.cpp has no form for, and what cannot be quantised here."""
    yield from gguf_refusals(spec.quant, "gguf", facts, plain=PLAIN)


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export at its fullest: a k-quant is made from an f16 file beside it."""
    file = weights * BITS.get(spec.quant, 5) / 8
    return round(file + (0 if spec.quant in PLAIN else 2 * weights))


def make(work: Work) -> list[str]:
    """Convert, quantise, and have the file read back."""
    from core.training.export.gguf_file import make_gguf

    return make_gguf(work)
