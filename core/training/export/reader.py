"""What a user's own process sees of an export: transformers' and peft's from_pretrained, and nothing of Factory.

A `Reader` is a process of its own, forked while this one has imported the libraries and loaded nothing yet: it knows
no weights, no tokenizer and no module of ours but this one. It answers one question and ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = (
    "Hello, world! 12 apples and 345 pears.",
    "Größe, naïve café: 東京 🙂",
    "  two  spaces\tand a tab\nnew line",
    "def add(a, b):\n    return a+b  # 3.14",
)
"""Texts that tokenizers differ on: numbers, accents, other scripts, spaces, code."""
CHATS: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "What is the capital of Norway?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "Two?"},
    ],
)
"""Chats that templates differ on: alone, with a system prompt, with a history."""


class Reader:
    """One fresh process that waits for its question. Start it before anything is loaded."""

    def __init__(self) -> None:
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, question: str, **given: Any) -> dict[str, Any]:
        """The answer to one of QUESTIONS. Raises Unreadable with what the libraries said."""
        self._ours.send((question, given))
        try:
            kind, answer = self._ours.recv()
        except EOFError:
            self._process.join()
            raise Unreadable(f"the reading process ended with code {self._process.exitcode}") from None
        self.close()
        if kind == "error":
            raise Unreadable(answer)
        return dict(answer)

    def close(self) -> None:
        """End the process. Idempotent."""
        # SIGKILL, as it has nothing to tidy up, and a SIGTERM between its fork and its first line would be lost.
        self._process.kill()
        self._process.join()
        self._ours.close()


class Unreadable(Exception):
    """An export that its reader could not load; the libraries' words."""


def _serve(connection: Any, parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: nobody is left to answer
        if os.getppid() != parent:
            os._exit(1)
    try:
        question, given = connection.recv()
    except EOFError:
        return
    try:
        connection.send(("answer", QUESTIONS[question](**given)))
    except Exception as problem:
        import traceback

        traceback.print_exc()
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        connection.send(("error", f"{type(problem).__name__}: {' '.join(lines[:3])[:400]}"))


def describe(tokenizer: Any) -> dict[str, Any]:
    """What must be the same in every copy of a tokenizer: its special tokens, its ids, its chats."""
    return {
        "eos token": (tokenizer.eos_token, tokenizer.eos_token_id),
        "bos token": (tokenizer.bos_token, tokenizer.bos_token_id),
        "pad token": (tokenizer.pad_token, tokenizer.pad_token_id),
        "chat template": tokenizer.chat_template,
        "token ids": [tokenizer(text)["input_ids"] for text in TEXTS],
        "rendered chats": [render(tokenizer, chat) for chat in CHATS],
    }


def render(tokenizer: Any, chat: list[dict[str, str]]) -> str | None:
    """A chat as the template writes it, ready for an answer; None without a template or where it refuses the chat."""
    if not tokenizer.chat_template:
        return None
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except Exception as problem:  # a template may refuse a system prompt, in words of its own
        return f"refused: {type(problem).__name__}"


def logits_of(model: Any, sequences: list[list[int]]) -> list[np.ndarray[Any, Any]]:
    """The model's answer to each sequence of ids, alone and in fp32: (tokens, vocabulary), or (1,) of a classifier."""
    import torch

    model.eval()
    with torch.no_grad():
        return [
            model(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
            .logits[0]
            .float()
            .cpu()
            .numpy()
            for ids in sequences
        ]


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _model(folder: str, task: str, **where: Any) -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if task == "SEQ_CLS" else AutoModelForCausalLM
    model, info = kind.from_pretrained(
        folder,
        dtype=torch.float32,  # 16-bit weights are read exactly; what differs then is the weights, not the arithmetic
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **where,
    )
    wrong = {name: sorted(map(str, found)) for name, found in dict(info).items() if found}
    return model, wrong


def _generation(folder: str) -> dict[str, Any] | None:
    from transformers import GenerationConfig

    if not (Path(folder) / "generation_config.json").is_file():
        return None
    config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return {"eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id}


def read_merged(folder: str, task: str, sequences: list[list[int]]) -> dict[str, Any]:
    """A folder with a whole model, by transformers' from_pretrained."""
    from transformers import AutoConfig

    tokenizer = _tokenizer(folder)
    model, wrong = _model(folder, task)
    return {
        "tokenizer": describe(tokenizer),
        "generation": _generation(folder),
        "wrong keys": wrong,
        "dtype": str(AutoConfig.from_pretrained(folder, local_files_only=True).dtype).removeprefix("torch."),
        "logits": logits_of(model, sequences),
    }


def read_adapter(folder: str, base: str, task: str, sequences: list[list[int]]) -> dict[str, Any]:
    """A folder with an adapter, by peft's from_pretrained on its base."""
    from peft import PeftConfig, PeftModel

    tokenizer = _tokenizer(folder)
    plain, _ = _model(base, task, **({"num_labels": 1} if task == "SEQ_CLS" else {}))
    config = PeftConfig.from_pretrained(folder)
    model = PeftModel.from_pretrained(plain, folder, config=config)
    return {
        "tokenizer": describe(tokenizer),
        "generation": _generation(folder),
        "base": config.base_model_name_or_path,
        "logits": logits_of(model, sequences),
    }


def read_gguf(folder: str, file: str, sequences: list[list[int]], settings: dict[str, Any]) -> dict[str, Any]:
    """A GGUF file's weights, by transformers' own reader, which is told those of `settings` that it reads wrongly.

    transformers 5.17 overlooks a head size of its own (qwen3) and scaled positions (llama 3). Its tokenizer is left
    alone: it takes begin and end mark for each other, needs a begin mark, and splits all text by one rule.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, gguf_file=file)
    told = {name: value for name, value in settings.items() if getattr(config, name, None) != value}
    for name, value in told.items():
        setattr(config, name, value)
    model, _ = _model(folder, "CAUSAL_LM", gguf_file=file, config=config)
    return {"logits": logits_of(model, sequences), "told": sorted(told)}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "merged": read_merged,
    "adapter": read_adapter,
    "gguf": read_gguf,
}
