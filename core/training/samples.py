"""Answers to fixed prompts, greedily, before and after training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

TOKENS = 4096
"""Most tokens of one batch, padding and answers counted: no more memory than training on usual rows took."""


def answer_prompts(model: Any, tokenizer: Any, prompts: list[str], max_new_tokens: int) -> list[str]:
    """One greedy answer per prompt, special tokens removed; the model's training mode and cache are left as found.

    Prompts of like length are answered together: ten at once take hardly longer than two alone, for each step reads
    every weight.
    """
    rows = [_ids(tokenizer, prompt) for prompt in prompts]
    answers = [""] * len(prompts)
    was_training = model.training
    model.eval()
    try:
        for batch in _batches([len(row) for row in rows], max_new_tokens):
            told = _answers(model, tokenizer, [rows[place] for place in batch], max_new_tokens)
            for place, answer in zip(batch, told, strict=True):
                answers[place] = answer
    finally:
        model.train(was_training)
    return answers


def _ids(tokenizer: Any, prompt: str) -> list[int]:
    if not tokenizer.chat_template:
        return list(tokenizer(prompt)["input_ids"])
    chat = [{"role": "user", "content": prompt}]
    return list(
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    )


def _batches(lengths: list[int], more: int) -> Iterator[list[int]]:
    """Places of the prompts, short ones first, as many together as TOKENS allows."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * (lengths[place] + more) > TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _answers(model: Any, tokenizer: Any, rows: list[list[int]], max_new_tokens: int) -> list[str]:
    """Answers to rows of token ids, which are filled up on the left with tokens that nobody sees."""
    width = max(map(len, rows))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
    with torch.no_grad():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=pad,
        )
    return [str(tokenizer.decode(row, skip_special_tokens=True)).strip() for row in out[:, width:]]
