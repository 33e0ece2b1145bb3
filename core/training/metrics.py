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
    "clip_ratio/region_mean": "clip_ratio",
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
