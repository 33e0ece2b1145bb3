"""Answers to a batch of prompts, with all that the update needs to know of the moment they were given.

Shapes: B prompts, P places for prompts (padding on the left), T places for answers (padding on the right).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from trl.trainer.utils import selective_log_softmax

from data.errors import refuse

TEMPERATURE_FLOOR = 1e-7
"""Added to the temperature wherever it divides, as in trl 1.12."""


@dataclass(frozen=True)
class Answers:
    """What was asked and answered."""

    ids: Tensor
    """(B, P + T) token ids."""
    mask: Tensor
    """(B, P + T): True for tokens of the prompt and of the answer, up to its end mark."""
    prompt_length: int
    """P."""
    lengths: Tensor
    """(B,) tokens of each answer, its end mark counted."""
    ended: Tensor
    """(B,): whether the answer has its end mark."""
    logprobs: Tensor
    """(B, T) log probabilities of the answers' tokens as they were drawn, 0 behind the end."""

    @property
    def tokens(self) -> Tensor:
        """(B, T) ids of the answers, padding included."""
        return self.ids[:, self.prompt_length :]

    @property
    def answered(self) -> Tensor:
        """(B, T): True for the tokens of the answers."""
        return self.mask[:, self.prompt_length :]

    def rows(self, places: Any) -> Answers:
        """Some of the answers."""
        names = ("ids", "mask", "lengths", "ended", "logprobs")
        return replace(self, **{name: getattr(self, name)[places] for name in names})

    def masks(self, applies: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) masks `learnt` and `valued` of a rollout in which rewards apply to some answers (B,)."""
        places = torch.arange(self.tokens.shape[1], device=self.ids.device)
        valued = (places <= self.lengths.unsqueeze(1)) & applies.unsqueeze(1)
        return self.answered & applies.unsqueeze(1), valued

    def texts(self, tokenizer: Any) -> list[str]:
        """The answers as text, special tokens removed."""
        rows = [ids[:length] for ids, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]
        return [str(text) for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


@dataclass(frozen=True)
class Rollout:
    """Answers with what rewards and models said of them."""

    answers: Answers
    learnt: Tensor
    """(B, T): True for the tokens that teach; none of an answer that no reward applies to."""
    valued: Tensor
    """(B, T): as `learnt`, and one place more: the state behind the last token, where the score arrives."""
    reference: Tensor
    """(B, T) log probabilities by the reference."""
    values: Tensor
    """(B, T) values of the state before each token, 0 where not `valued`."""
    scores: Tensor
    """(B,) weighted sum of the rewards, 0 for answers without one."""

    def rows(self, places: Any) -> Rollout:
        """Some of the answers, as a rollout of their own."""
        names = ("learnt", "valued", "reference", "values", "scores")
        return Rollout(self.answers.rows(places), **{name: getattr(self, name)[places] for name in names})


def padded_left(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Tensor, Tensor]:
    """Ids (B, P) and mask (B, P) of prompts, padding on the left."""
    longest = max(len(row) for row in rows)
    ids = [[pad] * (longest - len(row)) + list(row) for row in rows]
    mask = [[False] * (longest - len(row)) + [True] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def places_of(mask: Tensor) -> Tensor:
    """Position ids (B, S): how many tokens stand before each place."""
    return mask.cumsum(1) - mask.long()


class _Drawn(LogitsProcessor):
    """Notes the log probability of every token that is drawn, with one step's logits in memory instead of all."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._scores: Tensor | None = None
        self._logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._note(input_ids[:, -1])
        self._scores = scores / self._temperature
        if not torch.isfinite(torch.logsumexp(self._scores, dim=-1)).all():
            raise refuse(
                "loss_not_finite",
                "the policy's probabilities are no numbers any more: training stopped and the last good checkpoint "
                "kept; try a lower train.learning_rate.",
                field="train.learning_rate",
            )
        return scores

    def _note(self, drawn: Tensor) -> None:
        if self._scores is not None:
            self._logprobs.append(selective_log_softmax(self._scores.unsqueeze(1), drawn.unsqueeze(1)))

    def all(self, sequences: Tensor) -> Tensor:
        """(B, T) log probabilities, when generation is over."""
        self._note(sequences[:, -1])
        return torch.cat(self._logprobs, dim=1)


def answer(
    policy: Any,
    prompts: Sequence[Sequence[int]],
    tokenizer: Any,
    *,
    longest: int,
    temperature: float,
    at_once: int,
) -> Answers:
    """Sample one answer to each prompt (token ids), `at_once` of them at a time.

    An answer ends behind its end mark, or before a padding token where that is another one. Raises FactoryError when
    the policy has no probabilities to draw from.
    """
    ids, mask = padded_left(prompts, tokenizer.pad_token_id, policy.device)
    drawn, logprobs = [], []
    with _plain_generation(policy, tokenizer, longest, temperature + TEMPERATURE_FLOOR) as config:
        for start in range(0, len(ids), at_once):
            noted = _Drawn(temperature + TEMPERATURE_FLOOR)
            some = slice(start, start + at_once)
            sequences = policy.generate(  # without gradients, by its own decorator
                input_ids=ids[some],
                attention_mask=mask[some].long(),
                generation_config=config,
                logits_processor=LogitsProcessorList([noted]),
            )
            drawn.append(sequences[:, ids.shape[1] :])
            logprobs.append(noted.all(sequences))
    tokens = _same_width(drawn, tokenizer.pad_token_id)
    lengths, ended = ends(tokens, tokenizer.eos_token_id, tokenizer.pad_token_id)
    answered = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
    return Answers(
        ids=torch.cat([ids, tokens], dim=1),
        mask=torch.cat([mask, answered], dim=1),
        prompt_length=ids.shape[1],
        lengths=lengths,
        ended=ended,
        logprobs=_same_width(logprobs, 0).masked_fill(~answered, 0),
    )


@contextmanager
def _plain_generation(
    policy: Any, tokenizer: Any, longest: int, temperature: float
) -> Iterator[GenerationConfig]:
    """Settings under which answers are drawn from the policy itself.

    A model's own settings (a repetition penalty, top_k) are put aside meanwhile: they would be mixed in, and the
    answers would come from another distribution than the one that is trained.
    """
    config = GenerationConfig(
        max_new_tokens=longest,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        use_cache=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    holders = [policy, *([policy.get_base_model()] if hasattr(policy, "get_base_model") else [])]
    own = [holder.generation_config for holder in holders]
    try:
        for holder in holders:
            holder.generation_config = config
        yield config
    finally:
        for holder, before in zip(holders, own, strict=True):
            holder.generation_config = before


def ends(tokens: Tensor, eos: int, pad: int) -> tuple[Tensor, Tensor]:
    """(B,) lengths of the answers in `tokens` (B, T) with their end marks, and whether they have one."""
    width = tokens.shape[1]
    places = torch.arange(width, device=tokens.device)
    stop = torch.where(tokens == eos, places, width).amin(dim=1)
    cut = (
        torch.where(tokens == pad, places, width).amin(dim=1) if pad != eos else torch.full_like(stop, width)
    )
    ended = stop < cut
    return torch.where(ended, stop + 1, cut), ended


def _same_width(parts: list[Tensor], fill: float) -> Tensor:
    widest = max(part.shape[1] for part in parts)
    return torch.cat(
        [torch.nn.functional.pad(part, (0, widest - part.shape[1]), value=fill) for part in parts]
    )


def answer_logits(policy: Any, answers: Answers, temperature: float) -> Tensor:
    """(B, T, vocabulary) logits of the answers' tokens, divided by the temperature."""
    logits = policy(
        input_ids=answers.ids,
        attention_mask=answers.mask.long(),
        position_ids=places_of(answers.mask),
        use_cache=False,
    ).logits
    return logits[:, answers.prompt_length - 1 : -1].float() / (temperature + TEMPERATURE_FLOOR)


def answer_logprobs(logits: Tensor, answers: Answers) -> Tensor:
    """(B, T) log probabilities of the answers' tokens, 0 behind the end."""
    return selective_log_softmax(logits, answers.tokens).masked_fill(~answers.answered, 0)


def answer_values(value: Any, answers: Answers) -> Tensor:
    """(B, T) values of the state before each token, and garbage behind the end."""
    return states(value, answers.ids, answers.mask)[:, answers.prompt_length - 1 : -1]


def states(classifier: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """(B, S) what a classifier with one label says of every state of a sequence, not only of the last."""
    backbone = getattr(classifier, classifier.base_model_prefix)
    hidden = backbone(
        input_ids=ids, attention_mask=mask.long(), position_ids=places_of(mask), use_cache=False
    ).last_hidden_state
    return classifier.score(hidden).squeeze(-1).float()
