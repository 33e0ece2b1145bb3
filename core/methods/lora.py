"""LoRA: small low-rank matrices beside frozen weights (arXiv 2106.09685), through peft."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from core.methods.base import MethodSpec


class Spec(MethodSpec):
    """Train low-rank adapters: about 1 % of the weights move, the result is a small file or merges into the base."""

    name: Literal["lora"] = "lora"
    """The method."""
    rank: int = Field(16, ge=1, le=1024)
    """Rank of the adapter matrices; more rank, more capacity and memory."""
    alpha: int = Field(32, ge=1, le=4096)
    """Scale of the adapter: its output is multiplied by alpha / rank."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the adapter's input while training. 0 after 'LoRA Without Regret' and Unsloth's defaults."""
    target: Literal["all-linear"] | list[str] = "all-linear"
    """Modules that get an adapter: all linear layers but the output head, or a list of module names."""
    modules_to_save: list[str] = []
    """Modules trained in full and saved beside the adapter, such as embed_tokens or lm_head."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) (arXiv 2312.03732): steadier at high ranks."""


def apply(model: Any, spec: Spec, *, seed: int, task: str) -> Any:
    """The model wrapped by peft with fresh adapters, their init drawn from `seed`; `task` in peft's words.

    Raises FactoryError when a name in `target` or `modules_to_save` is not in the model.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    from core.training.modules import check_module_names

    check_module_names(model, spec.target, "method.target")
    check_module_names(model, spec.modules_to_save, "method.modules_to_save")
    torch.manual_seed(seed)  # or the adapters, and so the losses, would differ from run to run
    return get_peft_model(
        model,
        LoraConfig(
            task_type=task,
            r=spec.rank,
            lora_alpha=spec.alpha,
            lora_dropout=spec.dropout,
            target_modules=spec.target,
            modules_to_save=spec.modules_to_save or None,
            use_rslora=spec.rslora,
        ),
    )
