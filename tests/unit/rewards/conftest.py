"""A setting for rewards: an empty home, an environment that is only what the test says, and a list of warnings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.job.load import parse_job
from core.rewards import NamedScorer, Setting, build_scorers
from data.errors import Finding


@dataclass
class Bench:
    """Builds rewards as a stage does, and remembers what they said."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    told: list[Finding] = field(default_factory=list)

    @property
    def setting(self) -> Setting:
        """The setting for `build_scorers`."""
        return Setting(self.home, self.told.append, environ=self.environ)

    def build(self, *rewards: Any) -> list[NamedScorer]:
        """Scorers from rewards as they stand in a job: names, or mappings."""
        job = {"model": "smollm2-135m", "data": "rows.jsonl", "stage": "sft", "rewards": list(rewards)}
        return build_scorers(parse_job(json.dumps(job)).rewards, self.setting)

    def score(self, reward: Any, completions: list[str], **columns: list[Any]) -> list[float | None]:
        """The scores of one reward."""
        (one,) = self.build(reward)
        return one(completions, columns)


@pytest.fixture
def bench(tmp_path):
    """A bench with an empty home."""
    return Bench(tmp_path)
