"""The equations of PPO on tensors. Shapes: B answers of at most T tokens; masks are True where something counts.

Sources: PPO arXiv 1707.06347; GAE arXiv 1506.02438; reward minus KL per token arXiv 1909.08593; estimators of the KL
http://joschu.net/blog/kl-approx.html. Where these leave a choice it is that of trl 1.12's PPOTrainer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` (any shape) where `mask` is True; a scalar."""
    return (values * mask).sum() / mask.sum()


def whiten(values: Tensor, mask: Tensor, *, keep_mean: bool = False) -> Tensor:
    """`values` with variance 1 (and mean 0 unless `keep_mean`) over the masked places, 0 elsewhere; same shape.

    The variance is the unbiased one, over n - 1.
    """
    mean, count = masked_mean(values, mask), mask.sum()
    variance = masked_mean((values - mean) ** 2, mask) * (count / (count - 1))
    whitened = (values - mean) * torch.rsqrt(variance + 1e-8)
    return (whitened + mean if keep_mean else whitened).masked_fill(~mask, 0)


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """Distance of policy from reference per token, (B, T), from the log probabilities of the tokens that came out.

    k1 = -log r and k3 = (r - 1) - log r with r = reference / policy; both are unbiased, k3 varies less.
    """
    log_ratio = reference - logprobs
    return -log_ratio if estimator == "k1" else (log_ratio.exp() - 1) - log_ratio


def token_rewards(kl: Tensor, scores: Tensor, lengths: Tensor, kl_coef: float) -> Tensor:
    """Reward of each token, (B, T): -kl_coef x KL, and the answer's score (B,) one step behind its last token.

    An answer that fills all T places gets its score at its last token. `lengths` (B,) counts an answer's tokens.
    """
    rewards = -kl_coef * kl
    last = torch.clamp(lengths, max=kl.shape[1] - 1)
    rewards[torch.arange(len(rewards), device=rewards.device), last] += scores
    return rewards


def advantages_and_returns(
    rewards: Tensor, values: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation, arXiv 1506.02438 eq. 16: both (B, T).

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  returns = A + V. `values` are 0 behind
    the end of an answer.
    """
    steps = rewards.shape[1]
    advantage = torch.zeros_like(rewards[:, 0])
    backwards = []
    for t in reversed(range(steps)):
        following = values[:, t + 1] if t < steps - 1 else torch.zeros_like(advantage)
        delta = rewards[:, t] + gamma * following - values[:, t]
        advantage = delta + gamma * lam * advantage
        backwards.append(advantage)
    advantages = torch.stack(backwards[::-1], dim=1)
    return advantages, advantages + values


@dataclass(frozen=True)
class Clipped:
    """A clipped loss, the share of tokens at which the clipped side counted, and the mean ratio (policy only)."""

    loss: Tensor
    share: Tensor
    ratio: Tensor | None = None


def policy_loss(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, cliprange: float) -> Clipped:
    """The clipped surrogate, arXiv 1707.06347 eq. 7, as a loss: mean of max(-A r, -A clip(r)); r = exp(new - old).

    `new`, `old` (log probabilities), `advantages`, `mask`: (B, T).
    """
    ratio = torch.exp(new - old)
    free = -advantages * ratio
    clipped = -advantages * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange)
    loss = masked_mean(torch.max(free, clipped), mask)
    return Clipped(loss, masked_mean((clipped > free).float(), mask), masked_mean(ratio, mask))


def value_loss(new: Tensor, old: Tensor, returns: Tensor, mask: Tensor, cliprange: float) -> Clipped:
    """Half the squared error of `new` values against `returns`, the worse of free and clipped to `old` +- cliprange.

    The clipping is not in the paper but in its authors' code (arXiv 2006.05990, section 3.1). All (B, T).
    """
    near = torch.clamp(new, old - cliprange, old + cliprange)
    free, clipped = torch.square(new - returns), torch.square(near - returns)
    loss = 0.5 * masked_mean(torch.max(free, clipped), mask)
    return Clipped(loss, masked_mean((clipped > free).float(), mask))


def entropy(logits: Tensor, mask: Tensor) -> Tensor:
    """Mean entropy in nats of the distributions of `logits` (B, T, vocabulary) over the masked places."""
    shares = torch.softmax(logits, dim=-1)
    return masked_mean(torch.logsumexp(logits, dim=-1) - (shares * logits).sum(dim=-1), mask)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns) over the masked places: 1 is a perfect value model, 0 a constant."""
    error, there = (returns - values)[mask], returns[mask]
    return 1 - error.var(correction=0) / (there.var(correction=0) + 1e-8)
