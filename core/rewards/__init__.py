"""What is a good answer. One file per reward; a new reward is a file here, called like it, and its name in REWARDS.

`build_scorers` turns a job's rewards into checked, named, weighted scorers, `try_rewards` tries them before a run,
`combine` scores a batch with all of them, `reward_functions` hands them to a TRL trainer.
"""

from types import ModuleType

from core.job.register import Register
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

REWARDS = Register(
    __name__,
    "accuracy",
    "format",
    "think_tags",
    "length",
    "repetition",
    "json_valid",
    "model",
    "judge",
    "code",
    "file",
)


def reward_module(name: str) -> ModuleType:
    """The module of the reward called `name` (as in `rewards.0.name` of a checked job)."""
    return REWARDS.named(name)
