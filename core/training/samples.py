"""Answers to fixed prompts, greedily, before and after training."""

from __future__ import annotations

from typing import Any

import torch


def answer_prompts(model: Any, tokenizer: Any, prompts: list[str], max_new_tokens: int) -> list[str]:
    """One greedy answer per prompt, special tokens removed; the model's training mode and cache are left as found."""
    was_training = model.training
    model.eval()
    try:
        return [_answer(model, tokenizer, prompt, max_new_tokens) for prompt in prompts]
    finally:
        model.train(was_training)


def _answer(model: Any, tokenizer: Any, prompt: str, max_new_tokens: int) -> str:
    if tokenizer.chat_template:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )["input_ids"]
    else:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    ids = ids.to(model.device)
    with torch.no_grad():
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)).strip()
