"""QLoRA: LoRA beside a base held in 4 or 8 bits (arXiv 2305.14314), through peft and bitsandbytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from core.methods.adapter import AdapterSpec, wear


class Spec(AdapterSpec):
    """LoRA on a quantised base: a quarter of the base's memory in 16 bits, somewhat slower. Runs on a CPU too."""

    name: Literal["qlora"] = "qlora"
    """The method."""
    bits: Literal["nf4", "int8"] = "nf4"
    """How the base is held: 4-bit NormalFloat, or 8-bit integers."""
    double_quant: bool = True
    """Quantise the quantisation constants as well (nf4): 0.4 bits less for each weight."""


def loading(spec: Spec, *, gpu: bool) -> dict[str, Any]:
    """transformers' quantisation settings; arithmetic in bf16 on a GPU, in fp32 on a CPU."""
    import torch
    from transformers import BitsAndBytesConfig

    if spec.bits == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=spec.double_quant,
            bnb_4bit_compute_dtype=torch.bfloat16 if gpu else torch.float32,
        )
    }


def apply(model: Any, spec: Spec, *, seed: int, task: str, adapter: Path | None) -> Any:
    """The model with a fresh adapter, or with the trained one in `adapter`."""
    return wear(model, spec, seed=seed, task=task, adapter=adapter)
