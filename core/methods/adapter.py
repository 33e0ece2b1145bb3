"""What LoRA and QLoRA share: the settings of an adapter, and putting a fresh or a trained one beside the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from core.methods.base import MethodSpec

CHANGING_BASE = ("pissa", "olora")
"""Starts that take a part of the frozen weights into the adapter: with it switched off, the model is another one."""


class AdapterSpec(MethodSpec):
    """Settings of a low-rank adapter."""

    rank: int = Field(16, ge=1, le=1024)
    """Rank of the adapter matrices; more rank, more capacity and memory."""
    alpha: int = Field(32, ge=1, le=4096)
    """Scale of the adapter: its output is multiplied by alpha / rank."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the adapter's input while training. 0 after 'LoRA Without Regret' and Unsloth's defaults."""
    target: Literal["all-linear"] | list[str] = "all-linear"
    """Modules that get an adapter: all linear layers but the output head (with the experts and the router of Mixtral,
    Qwen3-MoE and their like), or a list of module names."""
    modules_to_save: list[str] = []
    """Modules trained in full and saved beside the adapter, such as embed_tokens or lm_head."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) (arXiv 2312.03732): steadier at high ranks."""
    dora: bool = False
    """Learn direction and magnitude apart (DoRA, arXiv 2402.09353): often better at low ranks, slower."""
    init: Literal["default", "gaussian", "orthogonal", "pissa", "olora"] = "default"
    """How the adapter starts, in peft's words; pissa (arXiv 2404.02948) and olora take the weights' main directions."""


def wear(model: Any, spec: AdapterSpec, *, seed: int, task: str, adapter: Path | None) -> Any:
    """The model wrapped by peft: with a fresh adapter drawn from `seed`, or with a trained one that goes on learning.

    Raises FactoryError when a name in `target` or `modules_to_save` is not in the model, or when the trained adapter
    does not fit it.
    """
    import torch
    from peft import get_peft_model

    if adapter is not None:
        return _trained(model, adapter)
    from core.training.modules import check_module_names

    check_module_names(model, spec.target, "method.target")
    check_module_names(model, spec.modules_to_save, "method.modules_to_save")
    torch.manual_seed(seed)  # or the adapters, and so the losses, would differ from run to run
    return get_peft_model(model, lora_config(spec, task))


def lora_config(spec: AdapterSpec, task: str) -> Any:
    """peft's LoraConfig (0.21) for these settings."""
    from peft import LoraConfig

    return LoraConfig(
        task_type=task,
        r=spec.rank,
        lora_alpha=spec.alpha,
        lora_dropout=spec.dropout,
        target_modules=spec.target,
        modules_to_save=spec.modules_to_save or None,
        use_rslora=spec.rslora,
        use_dora=spec.dora,
        init_lora_weights=True if spec.init == "default" else spec.init,
    )


def _trained(model: Any, adapter: Path) -> Any:
    from peft import PeftModel

    from core.training.model import adapter_refusal

    try:
        return PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    except (RuntimeError, ValueError, OSError, KeyError) as problem:
        raise adapter_refusal(adapter, problem) from problem
