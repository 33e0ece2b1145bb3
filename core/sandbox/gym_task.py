"""Score answers with reasoning-gym's own scorers. Some of them evaluate the answer as code, hence in here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from data.gym import decode


class Task:
    """No settings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from reasoning_gym import get_score_answer_fn

        self._scorer_of = get_score_answer_fn
        self._scorers: dict[str, Any] = {}

    def about(self) -> None:
        """Nothing to tell."""

    def answer(self, request: dict[str, Any]) -> Iterator[Any]:
        """For each [given, prompt, answer, task, metadata text] of {items}: a score, or a sentence about a bad row."""
        for item in request["items"]:
            yield self._score(*item)

    def _score(self, given: str, prompt: str, answer: str | None, task: str, metadata: str) -> Any:
        try:
            entry = {"question": prompt, "answer": answer, "metadata": decode(metadata)}
            if task not in self._scorers:
                self._scorers[task] = self._scorer_of(task)
        except (ValueError, KeyError, TypeError) as problem:
            return f"the row is not from gym ({type(problem).__name__})"
        try:
            return float(self._scorers[task](given, entry))
        except Exception:  # the scorers raise on answers of the wrong form: such an answer is wrong
            return 0.0
