"""Target ollama: a folder for `ollama create`: the GGUF file and a Modelfile with the right template and stop words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from core.export import gguf
from core.export.base import ExportSpec, Facts, gguf_refusals
from data.errors import Finding

if TYPE_CHECKING:
    from core.training.export.work import Work

VERIFIED = "as gguf; and chats rendered by the Modelfile's template against the tokenizer's own"


class Spec(ExportSpec):
    """A folder with Modelfile and model.gguf."""

    name: Literal["ollama"] = "ollama"
    """The target."""
    quant: gguf.Quant = "q8_0"
    """Precision of the weights, as for gguf."""


def refusals(spec: Spec, facts: Facts) -> Iterator[Finding]:
    """As for gguf."""
    yield from gguf_refusals(spec.quant, "ollama", facts, plain=gguf.PLAIN)


def size(spec: Spec, weights: int, trained: int) -> int:
    """Bytes of the export at its fullest."""
    return gguf.size(gguf.Spec(quant=spec.quant), weights, trained)


def make(work: Work) -> list[str]:
    """Make the GGUF file and the Modelfile, and have both read back."""
    from core.training.export.ollama_folder import make_ollama

    return make_ollama(work)
