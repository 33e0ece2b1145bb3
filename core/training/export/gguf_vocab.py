"""A tokenizer in GGUF's words: tokens, merges, marks, and the name of its way to split text before merging.

llama.cpp splits text by rules that are compiled into it, each under a name. A tokenizer is only converted when its
own rule is one of these, for another rule gives other token ids: no guess.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf

from data.errors import FactoryError, refuse

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPLITS = {
    rf"{_SHORT}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}": "llama-bpe",
    rf"{_SHORT}|{_LETTERS}|\p{{N}}|{_REST}": "qwen2",
}
"""Regular expressions of tokenizer.json, and what llama.cpp calls the same rule (its llama-vocab.cpp)."""


class Vocabulary:
    """What a GGUF file says about a tokenizer with `size` rows of embeddings."""

    def __init__(self, tokenizer: Any, folder: Path, size: int) -> None:
        self.tokenizer = tokenizer
        self.size = size
        if not getattr(tokenizer, "is_fast", False):
            raise _unknown("it is no fast tokenizer (tokenizer.json)")
        self.spec: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
        self.folder = folder
        pieces = not _byte_level(self.spec.get("pre_tokenizer"))
        self.kind = "llama" if pieces else "gpt2"
        if pieces and not (folder / "tokenizer.model").is_file():
            raise refuse(
                "gguf_tokenizer_model_missing",
                f"This tokenizer is a SentencePiece one, and GGUF needs its tokenizer.model, which is not in "
                f"{str(folder)!r}; copy it there from the original model, or export as merged.",
                value=str(folder),
            )
        self.pre = "default" if pieces else pre_tokenizer(self.spec)

    def add_to(self, writer: Any, ends: list[int]) -> None:
        """Write everything into the file's header."""
        writer.add_tokenizer_model(self.kind)
        writer.add_tokenizer_pre(self.pre)
        tokens, types, scores = self._tokens()
        writer.add_token_list(tokens)
        if scores:
            writer.add_token_scores(scores)
        writer.add_token_types(types)
        if self.kind == "gpt2":
            merges = self.spec["model"]["merges"]
            writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
        self._marks(writer, ends)
        if self.tokenizer.chat_template:
            writer.add_chat_template(self.tokenizer.chat_template)

    def begins_with_mark(self) -> bool:
        """Whether the tokenizer puts its begin mark before a text."""
        ids = self.tokenizer("a")["input_ids"]
        return bool(ids) and ids[0] == self.tokenizer.bos_token_id

    def _tokens(self) -> tuple[list[Any], list[int], list[float]]:
        if self.kind == "llama":
            return self._pieces()
        kinds = gguf.TokenType
        names: list[Any] = [f"[PAD{number}]" for number in range(self.size)]
        types = [int(kinds.UNUSED)] * self.size
        for token, number in self.tokenizer.get_vocab().items():
            self._fits(token, number)
            names[number], types[number] = token, int(kinds.NORMAL)
        for number, added in self.tokenizer.added_tokens_decoder.items():
            names[number] = added.content
            types[number] = int(kinds.CONTROL if added.special else kinds.USER_DEFINED)
        return names, types, []

    def _pieces(self) -> tuple[list[Any], list[int], list[float]]:
        names: list[Any] = [f"[PAD{number}]".encode() for number in range(self.size)]
        types = [int(gguf.TokenType.UNUSED)] * self.size
        scores = [-10000.0] * self.size
        for number, (text, score, kind) in enumerate(gguf.SentencePieceVocab(self.folder).all_tokens()):
            self._fits(str(text), number)
            names[number], scores[number], types[number] = text, score, int(kind)
        for number, added in self.tokenizer.added_tokens_decoder.items():
            names[number] = added.content.encode()
            types[number] = int(gguf.TokenType.CONTROL if added.special else gguf.TokenType.USER_DEFINED)
        return names, types, scores

    def _fits(self, token: str, number: int) -> None:
        if number >= self.size:
            raise refuse(
                "embeddings_too_few",
                f"The tokenizer has the token {token!r} with number {number:,}, and the model has {self.size:,} rows "
                "of embeddings; the model cannot know it.",
                value=number,
            )

    def _marks(self, writer: Any, ends: list[int]) -> None:
        tokenizer = self.tokenizer
        for number, add in (
            (tokenizer.bos_token_id, writer.add_bos_token_id),
            (tokenizer.eos_token_id, writer.add_eos_token_id),
            (tokenizer.unk_token_id, writer.add_unk_token_id),
            (tokenizer.pad_token_id, writer.add_pad_token_id),
        ):
            if number is not None:
                add(number)
        if others := [number for number in ends if number != tokenizer.eos_token_id]:
            writer.add_eot_token_id(others[0])
        writer.add_add_bos_token(self.begins_with_mark())
        if self.kind == "gpt2":
            writer.add_add_space_prefix(False)


def pre_tokenizer(spec: dict[str, Any]) -> str:
    """llama.cpp's name for the way a byte-level tokenizer.json splits text. Raises FactoryError when it has none."""
    step = spec.get("pre_tokenizer") or {}
    steps = step.get("pretokenizers", [step])
    kinds = [one.get("type") for one in steps]
    if any(one.get("add_prefix_space") for one in steps):
        raise _unknown("it puts a space before every text")
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt-2"
    if (
        kinds == ["Digits", "ByteLevel"]
        and steps[0].get("individual_digits")
        and steps[1].get("use_regex", True)
    ):
        return "smollm"
    if kinds == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
        rule = (steps[0].get("pattern") or {}).get("Regex")
        if rule in SPLITS and steps[0].get("behavior") == "Isolated":
            return SPLITS[rule]
    raise _unknown(f"its rule is {json.dumps(step, ensure_ascii=False)[:160]}")


def _byte_level(step: dict[str, Any] | None) -> bool:
    step = step or {}
    return any(one.get("type") == "ByteLevel" for one in step.get("pretokenizers", [step]))


def _unknown(why: str) -> FactoryError:
    known = ", ".join(["gpt-2", "smollm", *SPLITS.values()])
    return refuse(
        "gguf_pretokenizer_unknown",
        f"The tokenizer's pre-tokenizer is none that llama.cpp has under a name Factory knows ({known}): {why}; export "
        "as merged, or convert that folder with llama.cpp's own converter.",
    )
