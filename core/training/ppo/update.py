"""What is learnt from a rollout: advantages once, then several passes over mini-batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.stages import ppo
from core.training.ppo import maths
from core.training.ppo.rollout import Rollout, answer_logits, answer_logprobs, answer_values


@dataclass(frozen=True)
class Target:
    """What the update of a rollout aims at."""

    advantages: Tensor
    """(B, T), mean 0 and variance 1 over the tokens that teach."""
    returns: Tensor
    """(B, T): what each value should have been."""
    kl: Tensor
    """(B,) distance of each answer from the reference, in nats."""


@dataclass
class Means:
    """Means of the numbers of many small batches."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, values: dict[str, Tensor | float]) -> None:
        for name, value in values.items():
            self.sums[name] += float(value.detach() if isinstance(value, Tensor) else value)
            self.counts[name] += 1

    def means(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items()}


def target(rollout: Rollout, spec: ppo.Spec) -> Target:
    """Rewards per token, whitened when asked, then advantages and returns."""
    answers = rollout.answers
    kl = maths.kl_estimate(answers.logprobs, rollout.reference, spec.kl_estimator).masked_fill(
        ~rollout.learnt, 0
    )
    rewards = maths.token_rewards(kl, rollout.scores, answers.lengths, spec.kl_coef)
    if spec.whiten_rewards:
        rewards = maths.whiten(rewards, rollout.valued, keep_mean=True)
    advantages, returns = maths.advantages_and_returns(rewards, rollout.values, spec.gamma, spec.lam)
    return Target(maths.whiten(advantages, rollout.learnt), returns, kl.sum(1))


def batches(count: int, parts: int, batch: int, shuffle: np.random.RandomState) -> Iterator[list[Any]]:
    """One pass over `count` rows in random order: `parts` mini-batches, each as a list of batches of row numbers."""
    order = shuffle.permutation(count)
    size = count // parts
    for start in range(0, count, size):
        part = order[start : start + size]
        yield [torch.from_numpy(part[at : at + batch]) for at in range(0, size, batch)]


def losses(
    policy: Any, value: Any, rollout: Rollout, aim: Target, spec: ppo.Spec
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of some answers (a scalar: policy loss + vf_coef x value loss) and its parts."""
    answers = rollout.answers
    logits = answer_logits(policy, answers, spec.temperature)
    new = answer_logprobs(logits, answers)
    values = answer_values(value, answers).masked_fill(~rollout.valued, 0)
    acted = maths.policy_loss(new, answers.logprobs, aim.advantages, rollout.learnt, spec.cliprange)
    valued = maths.value_loss(values, rollout.values, aim.returns, rollout.valued, spec.cliprange_value)
    loss = acted.loss + spec.vf_coef * valued.loss
    with torch.no_grad():
        facts = {
            "loss": loss,
            "loss/policy": acted.loss,
            "loss/value": valued.loss,
            "clip_ratio": acted.share,
            "clip_ratio/value": valued.share,
            "ratio": acted.ratio,
            "approx_kl": 0.5 * maths.masked_mean((new - answers.logprobs) ** 2, rollout.learnt),
            "entropy": maths.entropy(logits, rollout.learnt),
        }
    return loss, facts


def learn(
    policy: Any,
    value: Any,
    rollout: Rollout,
    aim: Target,
    spec: ppo.Spec,
    *,
    batch: int,
    shuffle: np.random.RandomState,
    step: Callable[[], dict[str, float]],
    autocast: Callable[[], Any],
) -> dict[str, float]:
    """All passes over a rollout; the means of what was measured. `step` moves the weights and tells the norms.

    A mini-batch is one step of the optimizer: the mean of its batches' losses. (trl 1.12 counts the gradient
    accumulation of the whole batch even when it is split, so there num_mini_batches above 1 adds no steps unless
    the accumulation is 1.)
    """
    means = Means()
    for _ in range(spec.num_ppo_epochs):
        for mini in batches(len(rollout.scores), spec.num_mini_batches, batch, shuffle):
            for places in mini:
                some = rollout.rows(places)
                part = Target(aim.advantages[places], aim.returns[places], aim.kl[places])
                if not bool(some.learnt.any()):
                    continue
                with autocast():
                    loss, facts = losses(policy, value, some, part, spec)
                (loss / len(mini)).backward()
                means.add(facts)
            means.add(step())
    return means.means()
