"""Answers to the same prompt share its reading: several rows of a batch that begin alike are read once.

grpo and rloo answer each prompt several times. transformers 5.17 reads the prompt anew for each answer; here it is read
once, and what the model remembers of it (its cache) is copied. The tokens drawn are the same. Tried on two short
prompts first: where the next tokens differ, or the model keeps another kind of cache, generation stays as it was.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import DynamicCache


def install(model: Any) -> str | None:
    """Let the model's `generate` read repeated prompts once; the reason when it cannot, else None."""
    plain = model.generate
    shared = _Generate(model, plain)
    try:
        same = _same(model, plain, shared)
    except (TypeError, RuntimeError, ValueError, IndexError, AttributeError) as problem:
        return f"its cache cannot be copied ({type(problem).__name__})"
    if not same:
        return "its answers would differ"
    model.generate = shared
    return None


class _Generate:
    """`generate`, which begins with the prompts' cache where prompts are repeated."""

    def __init__(self, model: Any, plain: Any) -> None:
        self._model, self._plain = model, plain

    def __call__(
        self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> Any:
        copies = 1
        if attention_mask is not None and input_ids.shape[1] > 1 and "past_key_values" not in kwargs:
            copies = copies_of_each(input_ids, attention_mask)
        if attention_mask is not None and copies > 1:
            cache = self._read(input_ids[::copies, :-1], attention_mask[::copies, :-1])
            cache.batch_repeat_interleave(copies)
            kwargs["past_key_values"] = cache
        return self._plain(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

    @torch.no_grad()
    def _read(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> DynamicCache:
        """The cache of all prompts but their last tokens, which `generate` reads itself."""
        whole = self._model.get_base_model() if hasattr(self._model, "get_base_model") else self._model
        cache = DynamicCache(config=whole.config)
        getattr(whole, whole.base_model_prefix)(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=(attention_mask.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
        )
        return cache


def copies_of_each(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> int:
    """The largest number n for which the batch is groups of n equal rows that follow each other."""
    rows = torch.cat([input_ids, attention_mask.to(input_ids.dtype)], dim=1)
    _, counts = torch.unique_consecutive(rows, dim=0, return_counts=True)
    return math.gcd(*counts.tolist())


def _same(model: Any, plain: Any, shared: _Generate) -> bool:
    """Whether two prompts of 5 and 3 tokens, twice each, get the same four greedy tokens both ways."""
    device = next(model.parameters()).device
    ids = torch.tensor([[7, 8, 9, 10, 11], [0, 0, 12, 13, 14]], device=device).repeat_interleave(2, dim=0)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], device=device).repeat_interleave(2, dim=0)
    asked = {
        "max_new_tokens": 4,
        "do_sample": False,
        "use_cache": True,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs = [one(input_ids=ids, attention_mask=mask, **asked) for one in (plain, shared)]
    finally:
        model.train(training)
    return torch.equal(*outputs)
