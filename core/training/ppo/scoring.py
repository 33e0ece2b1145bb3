"""Rewards of answers: by token ids where a reward model shares the policy's tokenizer, as text everywhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.rewards import NamedScorer
from core.rewards.model import ModelScorer
from core.rewards.scoring import columns_of, warn_of_unscored
from core.training.ppo.rollout import Answers, states
from data.errors import refuse


@dataclass(frozen=True)
class Scored:
    """What the rewards gave a batch of B answers."""

    totals: Tensor
    """(B,) weighted sums, less the penalty of answers that were cut; 0 where no reward applies."""
    applies: Tensor
    """(B,): whether any reward applies."""
    by_name: dict[str, list[float | None]]
    """Each reward's scores as it gave them."""

    def means(self) -> dict[str, float]:
        """The mean of each reward over the answers that it applies to."""
        there = {name: [one for one in given if one is not None] for name, given in self.by_name.items()}
        return {name: math.fsum(given) / len(given) for name, given in there.items() if given}

    def of(self, row: int) -> dict[str, float]:
        """The scores of one answer."""
        return {name: given[row] for name, given in self.by_name.items() if given[row] is not None}  # type: ignore[misc]


class Rewards:
    """The job's rewards over a rollout."""

    def __init__(
        self, scorers: Sequence[NamedScorer], tokenizer: Any, *, at_once: int, cut_penalty: float
    ) -> None:
        self._scorers, self._tokenizer, self._cut_penalty = scorers, tokenizer, cut_penalty
        self._by_ids = {
            one.name: TokenScorer(one.scorer, tokenizer, at_once)
            for one in scorers
            if isinstance(one.scorer, ModelScorer) and one.spec.tasks is None
        }

    def __call__(self, answers: Answers, rows: Sequence[Mapping[str, Any]]) -> Scored:
        """Score the answers to `rows` (with columns prompt, answer, extra as data.prepare writes them).

        Raises FactoryError when a reward fails, or when none applies to any answer.
        """
        free = {
            name: [row.get(name) for row in rows] for name in rows[0] if name not in ("prompt", "input_ids")
        }
        columns = columns_of([row["prompt"] for row in rows], free)
        texts = answers.texts(self._tokenizer)
        given = {
            one.name: by_ids(answers) if (by_ids := self._by_ids.get(one.name)) else one(texts, columns)
            for one in self._scorers
        }
        totals = [
            _total(one, [one.weight for one in self._scorers]) for one in zip(*given.values(), strict=True)
        ]
        warn_of_unscored(totals, columns, self._scorers[0].setting.emit)
        if all(total is None for total in totals):
            raise refuse(
                "reward_never_applies",
                f"no reward applies to any of the {len(totals)} answers of this update, so there is nothing to learn "
                "from; check the rewards' columns, tasks and lengths.",
                field="rewards",
            )
        device = answers.ids.device
        applies = torch.tensor([total is not None for total in totals], device=device)
        sums = torch.tensor([total or 0.0 for total in totals], device=device)
        return Scored(sums - self._cut_penalty * (applies & ~answers.ended), applies, given)


def _total(given: Sequence[float | None], weights: Sequence[float]) -> float | None:
    counted = [weight * value for weight, value in zip(weights, given, strict=True) if value is not None]
    return math.fsum(counted) if counted else None


class TokenScorer:
    """A reward model on the very token ids of the policy: nothing is decoded, rendered and encoded again."""

    def __init__(self, scorer: ModelScorer, tokenizer: Any, at_once: int) -> None:
        self._scorer, self._at_once = scorer, at_once
        model, _ = scorer.parts()
        self._model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._longest = scorer.longest()
        self._pad = tokenizer.pad_token_id
        self._behind = _behind_the_end(scorer, tokenizer)

    def __call__(self, answers: Answers) -> list[float | None]:
        """One score an answer; None for answers that are with their prompt longer than the model can read."""
        ids, mask, last = self._sequences(answers)
        with torch.no_grad():
            parts = [
                states(self._model, ids[start : start + self._at_once], mask[start : start + self._at_once])
                for start in range(0, len(ids), self._at_once)
            ]
        scores = torch.cat(parts)[torch.arange(len(ids), device=ids.device), last]
        fits = (mask.sum(1) <= self._longest).tolist()
        if not all(fits):
            self._scorer.tell_too_long(fits.count(False), len(fits), self._longest)
        centred = [score - self._scorer.center for score in scores.tolist()]
        return [score if fit else None for score, fit in zip(centred, fits, strict=True)]

    def _sequences(self, answers: Answers) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and mask (B, S) of prompt, answer and what stands behind a whole answer, and (B,) the last place."""
        extra = len(self._behind)
        ids = answers.ids.masked_fill(~answers.mask, self._pad)
        mask, last = answers.mask, answers.prompt_length + answers.lengths - 1
        if not extra or not bool(answers.ended.any()):
            return ids, mask, last
        ids = torch.nn.functional.pad(ids, (0, extra), value=self._pad)
        mask = torch.nn.functional.pad(mask, (0, extra), value=False)
        for row in torch.nonzero(answers.ended).flatten().tolist():
            start = int(last[row]) + 1
            ids[row, start : start + extra] = torch.tensor(self._behind, device=ids.device)
            mask[row, start : start + extra] = True
        return ids, mask, last + extra * answers.ended


def _behind_the_end(scorer: ModelScorer, tokenizer: Any) -> list[int]:
    """Token ids that the chat template puts behind an answer's end mark: the model was trained to score there."""
    ids = scorer.ids("a", "b")
    ends = [place for place, token in enumerate(ids) if token == tokenizer.eos_token_id]
    return ids[ends[-1] + 1 :] if ends else []
