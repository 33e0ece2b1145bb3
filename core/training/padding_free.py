"""Training without padding: the rows of a batch are laid end to end, and each row attends only to itself.

A padded batch spends time on tokens that teach nothing. Here the decoder gets the real tokens as one long row, with the
positions they had, and attention goes row by row; the hidden states come back in the padded places, so every trainer
sees what it would have seen. So do the logits of a router of experts, which their balance loss masks like the batch.
Works for any stage and model whose decoder passes keyword arguments on to its attention; that is tried on two short
rows first, and where the numbers differ the model is left as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_by_row"
"""The attention's name in transformers' registry."""
TOLERANCE = 1e-3
"""Largest difference of a hidden state, relative to the largest one, at which two ways count as equal."""


def attention_by_row(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    row_ends: Sequence[int] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of rows that lie end to end: query (1, heads, tokens, size) -> (1, tokens, heads, size).

    `row_ends` are the offsets behind each row. Without them this is transformers' own sdpa attention.
    """
    if row_ends is None:
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **kwargs,
        )
    pieces, start = [], 0
    grouped = query.shape[1] != key.shape[1]
    for end in row_ends:
        row = slice(start, end)
        pieces.append(
            F.scaled_dot_product_attention(
                query[:, :, row],
                key[:, :, row],
                value[:, :, row],
                dropout_p=dropout,
                is_causal=True,
                scale=scaling,
                enable_gqa=grouped,
            )
        )
        start = end
    return torch.cat(pieces, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention_by_row)
AttentionMaskInterface.register(NAME, sdpa_mask)


def install(model: Any) -> str | None:
    """Let the model's decoder skip padding from now on; the reason when it cannot, else None."""
    decoder = getattr(model, model.base_model_prefix, None)
    if decoder is None or decoder.config._attn_implementation != "sdpa":
        return f"attention is {getattr(model.config, '_attn_implementation', None)!r}, not sdpa"
    plain = decoder.forward
    decoder.config._attn_implementation = NAME
    decoder.forward = _Without(decoder, plain)
    try:
        difference = _difference(decoder, plain)
    except (TypeError, RuntimeError, ValueError, IndexError) as problem:
        difference = None
        reason = f"its decoder does not take rows end to end ({type(problem).__name__})"
    else:
        reason = f"its numbers differ by {difference:.1e}"
    if difference is not None and difference < TOLERANCE:
        return None
    decoder.forward = plain
    decoder.config._attn_implementation = "sdpa"
    return reason


class _Without:
    """The decoder's forward, without padding where a batch has some."""

    def __init__(self, decoder: Any, plain: Any) -> None:
        self._plain = plain
        self._window = getattr(decoder.config, "sliding_window", None)

    def __call__(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        lengths = self._lengths(input_ids, attention_mask, position_ids, kwargs)
        if lengths is None or (self._window is not None and max(lengths) > self._window):
            return self._plain(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, **kwargs
            )
        assert input_ids is not None
        ends = torch.tensor(lengths).cumsum(0).tolist()
        if attention_mask is None:  # packed: already one row
            mask = _no_mask(input_ids)
            return self._plain(
                input_ids=input_ids, attention_mask=mask, position_ids=position_ids, row_ends=ends, **kwargs
            )
        real = attention_mask.bool()
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        output = self._plain(
            input_ids=input_ids[real][None],
            attention_mask=_no_mask(input_ids),
            position_ids=position_ids.expand_as(input_ids)[real][None],
            row_ends=ends,
            **kwargs,
        )
        output.last_hidden_state = _padded(output.last_hidden_state[0], real)
        if getattr(output, "router_logits", None) is not None:
            output.router_logits = tuple(
                _padded(one.flatten(end_dim=-2), real).flatten(end_dim=-2) for one in output.router_logits
            )
        return output

    @staticmethod
    def _lengths(
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> list[int] | None:
        """Tokens of each row where skipping padding is possible and worth it; None leaves the batch as it is."""
        if input_ids is None or kwargs.get("use_cache") or kwargs.get("past_key_values") is not None:
            return None
        if kwargs.get("output_hidden_states") or kwargs.get("output_attentions"):
            return None
        if attention_mask is None:
            if position_ids is None or input_ids.shape[0] != 1:
                return None
            starts = (position_ids[0] == 0).nonzero()[:, 0].tolist()
            bounds = [*starts, input_ids.shape[1]]
            return [b - a for a, b in zip(bounds, bounds[1:], strict=False)] if starts[:1] == [0] else None
        if attention_mask.dim() != 2 or attention_mask.shape != input_ids.shape:
            return None
        lengths = attention_mask.sum(dim=1).tolist()
        return None if min(lengths) in (0, input_ids.shape[1]) else [int(length) for length in lengths]


def _padded(flat: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The real tokens' values (tokens, size) in their places of the padded batch (rows, longest, size), else zeros."""
    padded = flat.new_zeros(*real.shape, flat.shape[-1])
    padded[real] = flat
    return padded


def _no_mask(input_ids: torch.Tensor) -> torch.Tensor:
    """A mask of four dimensions and no size: transformers 5.17 builds none of its own then, and none is read."""
    return torch.empty(1, 1, 0, 0, dtype=torch.bool, device=input_ids.device)


def _difference(decoder: Any, plain: Any) -> float:
    """Largest relative difference of the real tokens' hidden states, on a row of 7 and a row of 4 tokens.

    For a mixture of experts of its router's logits too, which it is asked for as the trainers ask for them.
    """
    device = next(decoder.parameters()).device
    ids = torch.arange(3, 17, device=device).reshape(2, 7) % decoder.config.vocab_size
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3], device=device)
    asked = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    if getattr(decoder.config, "output_router_logits", None) is not None:
        asked["output_router_logits"] = True
    training = decoder.training
    decoder.eval()
    try:
        with torch.no_grad():
            ours, theirs = (_told(forward(**asked), mask.bool()) for forward in (decoder.forward, plain))
    finally:
        decoder.train(training)
    return max(
        float((one - other).abs().max() / other.abs().max()) for one, other in zip(ours, theirs, strict=True)
    )


def _told(output: Any, real: torch.Tensor) -> list[torch.Tensor]:
    """What a decoder tells of the real tokens, each (tokens, size): hidden states, and the router's logits by layer."""
    routers = getattr(output, "router_logits", None) or ()
    return [output.last_hidden_state[real], *(one.flatten(end_dim=-2)[real.flatten()] for one in routers)]
