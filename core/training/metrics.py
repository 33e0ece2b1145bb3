"""Names of metrics: one vocabulary for every stage, whatever the trainer calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# What trl 1.12 and transformers 5.17 log -> our name. Not listed: kept as it is.
RENAMED = {
    "mean_token_accuracy": "token_accuracy",
    "num_tokens": "tokens",
    "mean_reward": "reward/mean",
    "min_reward": "reward/min",
    "max_reward": "reward/max",
    "rewards/chosen": "reward/chosen",
    "rewards/rejected": "reward/rejected",
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
    "reward": "reward/mean",
    "reward_std": "reward/std",
    "frac_reward_zero_std": "reward/no_spread",
    "completions/mean_length": "length/mean",
    "completions/min_length": "length/min",
    "completions/max_length": "length/max",
    "completions/clipped_ratio": "length/clipped",
    "completions/mean_terminated_length": "length/ended_mean",
    "completions/min_terminated_length": "length/ended_min",
    "completions/max_terminated_length": "length/ended_max",
    "clip_ratio/region_mean": "clip_ratio",
    "cispo_clip_ratio": "clip_ratio",
    "vespo/phi_seq_mean": "answer_weight",
}
DROPPED = {
    "epoch",  # a field of its own in the event
    "total_flos",
    "eval_num_tokens",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
}


_TOKENS = ("tokens", "tokens_per_second")
_PAIRS = (
    "logits/chosen",
    "logits/rejected",
    "logps/chosen",
    "logps/rejected",
    "reward/chosen",
    "reward/rejected",
)
_ANSWERS = (
    "reward/mean",
    "reward/std",
    "reward/no_spread",
    "reward/NAME/mean",
    "reward/NAME/std",
    "kl",
    "entropy",
    "length/mean",
    "length/min",
    "length/max",
    "length/clipped",
    "length/ended_mean",
    "length/ended_min",
    "length/ended_max",
    "clip_ratio",
    "clip_ratio/low_mean",
    "clip_ratio/low_min",
    "clip_ratio/high_mean",
    "clip_ratio/high_max",
    "step_time",
)

_PPO = (
    "loss/policy",
    "loss/value",
    "reward/mean",
    "reward/std",
    "reward/NAME/mean",
    "objective",
    "kl",
    "kl/answer",
    "entropy",
    "length/mean",
    "length/clipped",
    "clip_ratio",
    "clip_ratio/value",
    "ratio",
    "approx_kl",
    "value/explained",
    "grad_norm/value",
)

ALWAYS = ("loss", "learning_rate", "grad_norm")
"""What every stage logs at every record."""
LOGGED: dict[str, tuple[str, ...]] = {
    "pretrain": ("token_accuracy", "entropy", "trained_tokens", *_TOKENS),
    "sft": ("token_accuracy", "entropy", "trained_tokens", *_TOKENS),
    "reward": ("accuracy", "margin", "reward/mean", "reward/min", "reward/max", *_TOKENS),
    "dpo": ("accuracy", "margin", *_PAIRS, "token_accuracy", "entropy", *_TOKENS),
    "kto": ("margin", *_PAIRS, "kl", "entropy", *_TOKENS),
    "orpo": ("accuracy", "margin", *_PAIRS, "nll_loss", "log_odds_ratio", "log_odds_chosen"),
    "grpo": (*_ANSWERS, *_TOKENS),
    "rloo": (*_ANSWERS, *_TOKENS),
    "ppo": (*_PPO, *_TOKENS),
}
"""What each stage logs besides; NAME stands for each reward. kl only where there is a reference."""
LOGGED_WITH: dict[str, tuple[str, ...]] = {
    "dpo with loss cpo": ("nll_loss",),
    "dpo with loss simpo": ("nll_loss",),
    "grpo with loss vespo": ("answer_weight",),
    "a mixture of experts": ("aux_loss",),
}
"""What is logged only by some losses and models."""

MEANING: dict[str, tuple[str, str]] = {
    # name: (what it is, what healthy looks like); ranges from the guides of TRL and Axolotl
    "loss": (
        "what is minimised",
        "falls; chats begin at 1 to 4; dpo at 0.69; hovers around 0 in grpo and rloo",
    ),
    "learning_rate": ("rate of this step", "rises over the warmup, then follows the scheduler"),
    "grad_norm": (
        "length of the gradient before clipping",
        "0.1 to 10; above 100 unstable; exactly 0: nothing learns",
    ),
    "token_accuracy": (
        "share of trained tokens the model would have chosen itself",
        "rises; near 1 is learnt by heart",
    ),
    "entropy": (
        "how undecided the model is, nats a token",
        "falls slowly; in grpo below 0.01 it has collapsed",
    ),
    "trained_tokens": ("tokens so far that taught", "grows"),
    "tokens": ("tokens so far, padding not counted", "grows"),
    "tokens_per_second": ("tokens a second inside steps, saving and evaluating not counted", "steady"),
    "accuracy": ("share of pairs with the better answer in front", "0.5 at the start, above 0.7 soon"),
    "margin": ("distance between the better and the worse answer", "positive and rising"),
    "reward/mean": ("mean reward", "rises over tens of steps"),
    "reward/min": ("lowest score", "falls in the reward stage"),
    "reward/max": ("highest score", "rises in the reward stage"),
    "reward/std": (
        "spread of the rewards within a group (ppo: a batch)",
        "above 0, or there is nothing to learn",
    ),
    "reward/no_spread": ("share of groups whose answers all got the same reward", "below 0.8"),
    "reward/NAME/mean": ("mean of one reward", "rises, and none drowns the others"),
    "reward/NAME/std": ("spread of one reward", "above 0"),
    "reward/chosen": (
        "implicit reward of better answers: beta x log ratio to the reference",
        "rises, or falls less",
    ),
    "reward/rejected": ("implicit reward of worse answers", "falls"),
    "logps/chosen": ("log probability of better answers", "should not fall far"),
    "logps/rejected": ("log probability of worse answers", "falls; rising is bad"),
    "logits/chosen": ("mean logit over better answers", "no trend needed"),
    "logits/rejected": ("mean logit over worse answers", "no trend needed"),
    "nll_loss": ("likelihood part of the loss", "falls"),
    "log_odds_ratio": ("odds ratio part of the loss", "rises towards 0"),
    "log_odds_chosen": ("log odds of better over worse answers", "rises"),
    "kl": (
        "distance from the reference, nats a token",
        "below 2; above 10 the model has left it",
    ),
    "kl/answer": ("distance from the reference, nats an answer", "grows slowly; kl_coef times it is paid"),
    "objective": ("mean reward less kl_coef times kl/answer: what is maximised", "rises over tens of steps"),
    "loss/policy": ("clipped loss of the policy", "hovers around 0, mostly below"),
    "loss/value": ("squared error of the value model, halved", "falls over tens of steps"),
    "value/explained": (
        "share of the returns' variance that the value model foresaw",
        "rises towards 1; below 0 it is worse than a constant",
    ),
    "grad_norm/value": ("length of the value model's gradient before clipping", "falls over tens of steps"),
    "ratio": ("mean ratio of new to old policy", "0.9 to 1.1"),
    "approx_kl": ("distance of the new policy from that of the answers, nats a token", "below 0.02"),
    "clip_ratio/value": ("share of values that were clipped", "falls over tens of steps"),
    "length/mean": ("mean length of answers, tokens", "steady; rising to the limit is often reward hacking"),
    "length/min": ("shortest answer", "above 0"),
    "length/max": ("longest answer", "below max_completion_length"),
    "length/clipped": ("share of answers cut at max_completion_length", "below 0.3"),
    "length/ended_mean": ("mean length of answers that ended by themselves", "steady"),
    "length/ended_min": ("shortest of them", "above 0"),
    "length/ended_max": ("longest of them", "below max_completion_length"),
    "clip_ratio": ("share of tokens whose ratio was clipped", "below 0.3"),
    "clip_ratio/low_mean": ("clipped from below, mean over processes", "small"),
    "clip_ratio/low_min": ("clipped from below, lowest", "small"),
    "clip_ratio/high_mean": ("clipped from above, mean over processes", "small"),
    "clip_ratio/high_max": ("clipped from above, highest", "small"),
    "answer_weight": (
        "mean weight of an answer's gradient by how the policy changed since it was drawn (vespo)",
        "1 while the policy is the one that drew it; far below 1 the answers are too old",
    ),
    "aux_loss": (
        "balance of the experts' work, without its weight 0.001; the loss holds it",
        "near the number of experts that each token goes through, which is even work; rising: some do all of it",
    ),
    "step_time": ("seconds a step", "steady"),
}


def common_names(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a trainer's log record under the common names; what is not a number is left out."""
    return {
        _common(key): float(value)
        for key, value in logs.items()
        if key not in DROPPED and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _common(key: str) -> str:
    """The common name; evaluation keeps its eval_ in front, a single reward function its own name."""
    if key.startswith("eval_"):
        return f"eval_{_common(key.removeprefix('eval_'))}"
    if key.startswith("rewards/") and key.endswith(("/mean", "/std")):
        return key.replace("rewards/", "reward/", 1)
    return RENAMED.get(key, key)


def not_finite(values: Mapping[str, float]) -> str | None:
    """The name of the first loss or gradient norm that is NaN or infinite, or None."""
    watched = ("loss", "eval_loss", "grad_norm", "train_loss")
    return next((name for name in watched if name in values and not math.isfinite(values[name])), None)
