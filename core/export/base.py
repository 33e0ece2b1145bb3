"""What every export has in common. A target's file holds `Spec`, `VERIFIED`, `refusals`, `size` and `make`.

`refusals(spec, facts)` says before any work what this run cannot become; `size(spec, weights)` guesses the bytes;
`make(work)` is the heavy half: it runs in a process of its own (core.training.exporting), fills `work.folder` and
returns the sentences that say what was verified and by whom. A file that does not verify raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from core.job.base import Named, unit
from data.errors import Finding

GGUF_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""Model types (config.json) that become GGUF, and what llama.cpp calls their architecture."""

HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables of which one must hold the user's token for the hub."""


class ExportSpec(Named):
    """A form in which the result of a run can be used elsewhere."""

    checkpoint: int | None = Field(None, ge=1, json_schema_extra=unit("steps"))
    """Take the checkpoint of this step. Empty: the finished model."""


@dataclass(frozen=True)
class Facts:
    """What is known of a run before anything is loaded."""

    stage: str
    method: str
    model_type: str | None = None
    """As config.json of the base says; None when the base is not here yet."""
    llama_cpp: bool = False
    """Whether the package llama-cpp-python is installed."""
    hub_token: bool = False
    """Whether the environment holds a token of the hub."""

    @property
    def classifier(self) -> bool:
        """Whether the result scores answers instead of writing them."""
        return self.stage == "reward"

    @property
    def adapter(self) -> bool:
        """Whether the result is an adapter beside an unchanged base."""
        return self.method in ("lora", "qlora")


def gguf_refusals(quant: str, kind: str, facts: Facts, *, plain: tuple[str, ...]) -> Iterator[Finding]:
    """Why a run cannot become a GGUF file of this quant, for the targets that make one."""
    if facts.classifier:
        yield Finding(
            "export_of_a_classifier",
            f"A reward model scores answers and GGUF holds models that write them, so {kind} is not possible; "
            "export it as merged.",
            value=kind,
        )
    elif facts.model_type is not None and facts.model_type not in GGUF_ARCHITECTURES:
        yield Finding(
            "export_architecture",
            f"GGUF is made of {', '.join(GGUF_ARCHITECTURES)} models and this one is {facts.model_type!r}; "
            "export it as merged, which llama.cpp's own converter reads.",
            value=facts.model_type,
        )
    if quant not in plain and not facts.llama_cpp:
        yield Finding(
            "export_quant_missing",
            f"Quant {quant!r} needs the package llama-cpp-python, which is not installed; run: factory env install "
            f"gguf, or take {' or '.join(plain)}.",
            field="quant",
            value=quant,
        )
