"""Answers of a job's model to a few prompts: `python -m core.training.bench`, a request on stdin, JSON on stdout.

Started by `factory rewards try`. The request is {job, home, prompts, answers, tokens}; the answer {answers: [[text]]},
sampled as the job's stage samples. Exit code 2 and {"findings": [...]} when the model cannot be loaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed
from transformers.utils import logging

from core.job.spec import JobSpec
from core.training.answering import answer
from core.training.model import adapter_folder, load_model, load_tokenizer

AT_ONCE = 32
"""Answers generated in one batch."""


def sample(job: JobSpec, home: Path, prompts: list[Any], count: int, tokens: int) -> list[list[str]]:
    """`count` answers to each prompt (a text or a chat), at most `tokens` long."""
    logging.disable_progress_bar()
    gpu = torch.cuda.is_available()
    tokenizer = load_tokenizer(job.model, home)
    model = load_model(job, home, gpu=gpu)
    if job.model.adapter is not None and job.method.name in ("lora", "qlora"):
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(adapter_folder(job.model.adapter)))
    model.eval()
    set_seed(job.train.seed)
    tokenizer.padding_side = "left"
    texts = [_rendered(tokenizer, prompt) for prompt in prompts]
    answers: list[list[str]] = []
    step = max(1, AT_ONCE // count)
    for start in range(0, len(texts), step):
        made = _batch(model, tokenizer, texts[start : start + step], job.stage, count, tokens)
        answers += [made[at : at + count] for at in range(0, len(made), count)]
    return answers


def _rendered(tokenizer: Any, prompt: Any) -> str:
    if not tokenizer.chat_template:
        return prompt if isinstance(prompt, str) else "\n".join(turn["content"] for turn in prompt)
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))


def _batch(model: Any, tokenizer: Any, texts: list[str], stage: Any, count: int, tokens: int) -> list[str]:
    ids = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=not tokenizer.chat_template)
    ids = ids.to(model.device)
    with torch.no_grad():
        out = model.generate(
            input_ids=ids["input_ids"],
            attention_mask=ids["attention_mask"],
            max_new_tokens=tokens,
            do_sample=True,
            temperature=getattr(stage, "temperature", 1.0),
            top_p=getattr(stage, "top_p", 1.0),
            top_k=getattr(stage, "top_k", 0),
            num_return_sequences=count,
            use_cache=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    return list(tokenizer.batch_decode(out[:, ids["input_ids"].shape[1] :], skip_special_tokens=True))


def main() -> int:
    """Answer one request: {job, home, prompts, answers, tokens}."""

    def answers(text: str) -> dict[str, Any]:
        asked = json.loads(text)
        job = JobSpec.model_validate(asked["job"])
        return {
            "answers": sample(job, Path(asked["home"]), asked["prompts"], asked["answers"], asked["tokens"])
        }

    return answer(answers)


if __name__ == "__main__":
    sys.exit(main())
