"""Think tags: 1 when a completion thinks first and then answers, each once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from core.rewards.base import Columns, RewardSpec, Scorer, Setting, values


class Spec(RewardSpec):
    """Does it think inside tags, once and closed, and answer after them?"""

    name: Literal["think_tags"] = "think_tags"
    """The reward."""
    opening: str = Field("<think>", min_length=1, max_length=100)
    """The mark before the thoughts; may stand at the end of the prompt instead, as some templates have it."""
    closing: str = Field("</think>", min_length=1, max_length=100)
    """The mark after the thoughts."""
    partial: bool = False
    """Half a point for each mark that stands there exactly once, so that a beginner gets a signal."""


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer of 1.0 or 0.0, with `partial` also 0.5."""

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        prompts = values(columns, "prompt", len(completions))
        return [_score(spec, text, prompt) for text, prompt in zip(completions, prompts, strict=True)]

    return score


def _score(spec: Spec, completion: str, prompt: object) -> float:
    if isinstance(prompt, str) and prompt.rstrip().endswith(spec.opening):
        completion = spec.opening + completion
    once = completion.count(spec.opening) == 1, completion.count(spec.closing) == 1
    if not all(once):
        return 0.5 * sum(once) if spec.partial else 0.0
    before, _, rest = completion.partition(spec.opening)
    thoughts, _, answer = rest.partition(spec.closing)
    in_order = not before.strip() and spec.closing in rest and thoughts.strip() and answer.strip()
    return 1.0 if in_order else 0.5 if spec.partial else 0.0
