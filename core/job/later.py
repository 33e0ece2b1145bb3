"""Which settings of a run may still change when it is resumed: how long it goes on, where its nodes are, what it
tells and what it keeps.

All others shaped what was trained so far: with them changed, the first part of the run would be another run's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LATER = (
    "train.epochs",
    "train.max_steps",
    "train.logging_steps",
    "train.save_steps",
    "train.eval_steps",
    "train.keep_checkpoints",
    "train.early_stopping",
    "train.watchdog",
    "evaluate.prompts",
    "evaluate.every",
    "evaluate.max_new_tokens",
    "launcher.time",
    "launcher.partition",
    "launcher.account",
    "launcher.qos",
    "launcher.reservation",
    "launcher.memory",
    "launcher.constraint",
    "launcher.exclude",
    "launcher.endpoint",
    "launcher.hosts",
    "launcher.ssh_port",
    "launcher.interface",
    "launcher.timeout",
    "report_to",
    "export",
    "name",
)


def fixed(job: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved job that stays what it was for all attempts of a run."""
    kept = {
        part: {key: value for key, value in values.items() if f"{part}.{key}" not in LATER}
        if isinstance(values, Mapping)
        else values
        for part, values in job.items()
        if part not in LATER
    }
    return {part: values for part, values in kept.items() if values != {}}


def changes(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Every field in which two jobs differ, dotted, with both values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: dict[str, tuple[Any, Any]] = {}
        for name in dict.fromkeys([*old, *new]):
            found |= changes(old.get(name), new.get(name), f"{path}.{name}")
        return found
    return {} if old == new else {path.lstrip("."): (old, new)}


def told(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Changes in words: `train.epochs 1.0 -> 2.0`."""
    return ", ".join(f"{name} {_word(old)} -> {_word(new)}" for name, (old, new) in changed.items())


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "empty" if value is None else repr(value)


def total_steps(job: Mapping[str, Any], before: Mapping[str, Any], total_before: int | None) -> int | None:
    """Optimizer steps of a job, from those that the same job had with the settings `before`; None: not known."""
    train, was = job.get("train") or {}, before.get("train") or {}
    if train.get("max_steps"):
        return int(train["max_steps"])
    epochs, old = train.get("epochs"), was.get("epochs")
    if was.get("max_steps") or not (total_before and epochs and old):
        return None
    return int(math.ceil(total_before * epochs / old))
