"""A linear layer with a LoRA adapter on a CPU, in fewer passes over its output.

peft 0.21 writes the adapter's product, scales it, and adds it to the layer's output: three passes forward and as many
back. Here the matrix multiplication adds it where it belongs. Layers of another kind, and adapters with dropout, DoRA
or a bias, stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from torch.autograd.function import once_differentiable


def install(model: Any) -> int:
    """Shorten the model's plain LoRA layers; their number."""
    layers = [
        module
        for module in model.modules()
        if type(module) is LoraLinear and type(module.base_layer) is torch.nn.Linear
    ]
    for layer in layers:
        layer.forward = _Forward(layer)
    return len(layers)


class _Forward:
    """The forward of a peft LoRA layer, looking anew at each call whether it is the plain kind."""

    def __init__(self, layer: LoraLinear) -> None:
        self._layer, self._plain = layer, layer.forward

    def __call__(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        layer, name = self._layer, self._only_adapter()
        if name is None or args or kwargs or torch.is_autocast_enabled("cpu"):
            return self._plain(x, *args, **kwargs)
        base, down, up = layer.base_layer, layer.lora_A[name], layer.lora_B[name]
        if not _plain(x, base.weight, down.weight, up.weight) or any(map(_hooked, (base, down, up))):
            return self._plain(x)
        flat = x.reshape(-1, x.shape[-1])
        out = _Adapted.apply(flat, base.weight, base.bias, down.weight, up.weight, layer.scaling[name])
        return out.view(*x.shape[:-1], -1)

    def _only_adapter(self) -> str | None:
        """The active adapter, where there is one and nothing but two matrices and a scale belong to it."""
        layer = self._layer
        if layer.disable_adapters or layer.merged or layer.base_layer.weight.requires_grad:
            return None
        active = [name for name in layer.active_adapters if name in layer.lora_A]
        if len(active) != 1 or active[0] in layer.lora_variant or layer.lora_bias[active[0]]:
            return None
        dropout = layer.lora_dropout[active[0]]
        return active[0] if isinstance(dropout, torch.nn.Identity) or not dropout.training else None


def _plain(*tensors: torch.Tensor) -> bool:
    return all(one.device.type == "cpu" and one.dtype == torch.float32 for one in tensors)


def _hooked(module: torch.nn.Module) -> bool:
    """Whether something else has work at the module's forward, as DeepSpeed's gathering of spread weights has."""
    return bool(module._forward_pre_hooks or module._forward_hooks)


class _Adapted(torch.autograd.Function):
    """x W' + bias + scale (x A') B' with W frozen: (tokens, in) -> (tokens, out)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        inner = torch.mm(x, down.t())
        out = torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())
        ctx.save_for_backward(x, weight, down, up, inner)
        ctx.scale = scale
        return out.addmm_(inner, up.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, down, up, inner = ctx.saved_tensors
        of_inner = torch.mm(of_out, up).mul_(ctx.scale)
        of_x = torch.mm(of_out, weight).addmm_(of_inner, down) if ctx.needs_input_grad[0] else None
        of_up = torch.mm(of_out.t(), inner).mul_(ctx.scale)
        return of_x, None, None, torch.mm(of_inner.t(), x), of_up, None
