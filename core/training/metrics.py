"""Names of metrics: one vocabulary for every stage, whatever the trainer calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# What trl 1.12 and transformers 5.17 log -> our name. Not listed: kept as it is.
RENAMED = {
    "mean_token_accuracy": "accuracy",
    "eval_mean_token_accuracy": "eval_accuracy",
    "num_tokens": "tokens",
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
        RENAMED.get(key, key): float(value)
        for key, value in logs.items()
        if key not in DROPPED and isinstance(value, int | float) and not isinstance(value, bool)
    }


def not_finite(values: Mapping[str, float]) -> str | None:
    """The name of the first loss or gradient norm that is NaN or infinite, or None."""
    watched = ("loss", "eval_loss", "grad_norm", "train_loss")
    return next((name for name in watched if name in values and not math.isfinite(values[name])), None)
