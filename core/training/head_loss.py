"""The loss at the output head on a CPU: each trained token's logits are made once, and used up on the spot.

trl 1.12 makes them twice (once more in the backward pass, to save memory), rounds their number up to whole blocks, and
reads each block about ten times. Here a block gives its loss and its gradient in one go, so nothing of it is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from trl.trainer import sft_trainer

ROWS = 256
"""Tokens whose logits are in memory at once, as in trl 1.12."""
PLAIN = {"logit_scale": 1.0, "final_logit_softcapping": None, "lm_head_bias": None}
"""Heads that are one matrix and nothing else; trl's own loss takes the others."""

_library_loss = sft_trainer._chunked_cross_entropy_loss


def install() -> None:
    """Let the trainers of this process that use trl 1.12's chunked loss use this one."""
    sft_trainer._chunked_cross_entropy_loss = head_loss


def head_loss(
    hidden_states: torch.Tensor,
    lm_head_weight: torch.Tensor,
    chunk_size: int,
    labels: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
    num_items_in_batch: torch.Tensor | int | None = None,
    **rest: Any,
) -> Any:
    """Loss, right guesses, sum of entropies (nats) and number of trained tokens, as trl 1.12's function of that name.

    What this cannot take goes to the library's function: another device or precision, a head with more than a matrix,
    a batch with nothing to train, evaluation.
    """
    wanted = (labels[..., 1:] if labels is not None else None) if shift_labels is None else shift_labels
    if wanted is None or not _can(hidden_states, lm_head_weight, rest) or not (wanted != -100).any():
        return _library_loss(
            hidden_states, lm_head_weight, chunk_size, labels, shift_labels, num_items_in_batch, **rest
        )
    states = hidden_states[..., :-1, :] if shift_labels is None else hidden_states
    trained = (wanted != -100).reshape(-1)
    loss, right, entropy = _HeadLoss.apply(
        states.reshape(-1, states.shape[-1])[trained], lm_head_weight, wanted.reshape(-1)[trained]
    )
    count = trained.sum()
    return loss / (count if num_items_in_batch is None else num_items_in_batch), right, entropy, count


def _can(hidden: torch.Tensor, weight: torch.Tensor, rest: dict[str, Any]) -> bool:
    whole = not hasattr(
        weight, "ds_id"
    )  # DeepSpeed spreads weights over processes, and the library gathers them
    numbers = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in (hidden, weight))
    simple = all(rest.get(name, value) == value for name, value in PLAIN.items())
    return whole and numbers and simple and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


class _HeadLoss(torch.autograd.Function):
    """Sum of cross-entropies of hidden (tokens, size) against labels (tokens), by the head's weight (words, size).

    Beside it, and without gradients: how many labels the head would have guessed, and the sum of the entropies.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        sums = hidden.new_zeros(3)
        block = hidden.new_empty(min(ROWS, len(hidden)), len(weight))
        for start in range(0, len(hidden), ROWS):
            states, wanted = hidden[start : start + ROWS], labels[start : start + ROWS]
            logits = torch.mm(states, weight.t(), out=block[: len(states)])
            highest, guess = logits.max(dim=-1, keepdim=True)
            picked = logits.gather(1, wanted[:, None])
            shares = logits.sub_(highest).exp_()  # not yet divided by their sum
            total = shares.sum(dim=-1, keepdim=True)
            all_words = highest + total.log()  # the logarithm of the sum of exponentials
            mean = torch.mm(shares, weight).div_(total)  # of the head's rows, weighted by probability
            sums[0] += (all_words - picked).sum()
            sums[1] += (guess[:, 0] == wanted).sum()
            # entropy = log sum exp - mean logit, and the mean logit is the product with the mean row
            sums[2] += (all_words[:, 0] - torch.linalg.vecdot(states, mean)).sum()
            torch.sub(mean, weight[wanted], out=of_hidden[start : start + ROWS])
            if of_weight is not None:
                of_weight.addmm_(shares.t(), states / total).index_add_(0, wanted, states, alpha=-1)
        ctx.save_for_backward(of_hidden, of_weight)
        loss, right, entropy = (one.clone() for one in sums.unbind())
        ctx.mark_non_differentiable(right, entropy)
        return loss, right, entropy

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, of_loss: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * of_loss, None if of_weight is None else of_weight * of_loss, None
