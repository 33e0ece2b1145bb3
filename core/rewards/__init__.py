"""What is a good answer. One file per reward; a new reward is a file here and its name in REWARDS.

`build_scorers` turns a job's rewards into checked, named, weighted scorers, `try_rewards` tries them before a run,
`combine` scores a batch with all of them, `reward_functions` hands them to a TRL trainer.
"""

from types import ModuleType

from core.rewards import (
    accuracy,
    code,
    file,
    format,
    json_valid,
    judge,
    length,
    model,
    repetition,
    think_tags,
)
from core.rewards.base import RewardSpec, Setting, completion_text
from core.rewards.scoring import (
    Combined,
    NamedScorer,
    build_scorers,
    combine,
    missing_columns,
    reward_functions,
    try_rewards,
)

__all__ = [
    "REWARDS",
    "Combined",
    "NamedScorer",
    "RewardSpec",
    "Setting",
    "build_scorers",
    "combine",
    "completion_text",
    "missing_columns",
    "reward_functions",
    "reward_module",
    "try_rewards",
]

REWARDS: tuple[ModuleType, ...] = (
    accuracy,
    format,
    think_tags,
    length,
    repetition,
    json_valid,
    model,
    judge,
    code,
    file,
)


def reward_module(name: str) -> ModuleType:
    """The module of the reward called `name` (as in `rewards.0.name` of a checked job)."""
    return next(module for module in REWARDS if module.Spec.model_fields["name"].default == name)
