"""Dialogues written as one text with marks for who speaks: HH-RLHF, Guanaco, ChatML, Llama 2. Knows no columns."""

from __future__ import annotations

import re

from data.rows import ROLE_WORDS, Turn, Unusable

_HH = re.compile(r"(?:^|\n\n)(Human|Assistant):[ ]?")
_GUANACO = re.compile(
    r"\s*###\s*(Human|User|Instruction|Input|Assistant|Response|System)\s*:\s*", re.IGNORECASE
)
_CHATML = re.compile(r"<\|im_start\|>\s*(\w+)\s*\n(.*?)(?:<\|im_end\|>\s*|\Z)", re.DOTALL)
_LLAMA2 = re.compile(r"(?:<s>)?\s*\[INST\](.*?)\[/INST\](.*?)(?:</s>|(?=\[INST\])|\Z)", re.DOTALL)
_SYSTEM = re.compile(r"<<SYS>>(.*?)<</SYS>>", re.DOTALL)
_WORDS = {**ROLE_WORDS, "instruction": "user", "input": "user", "response": "assistant"}


def is_hh(text: str) -> bool:
    """True for a dialogue with `Human:` and `Assistant:` paragraphs."""
    return text.startswith("\n\nHuman:") or (text.startswith("Human:") and "\n\nAssistant:" in text)


def is_marked(text: str) -> bool:
    """True for a text with the chat marks of a known dialect."""
    return (
        is_hh(text)
        or "<|im_start|>" in text
        or ("[INST]" in text and "[/INST]" in text)
        or (len(_GUANACO.findall(text[:100_000])) >= 2 and text.lstrip().startswith("###"))
    )


def split_hh(text: str) -> list[Turn]:
    """The turns of an HH dialogue; the last may be empty."""
    return _split(text, _HH)


def split_marked(text: str) -> list[Turn]:
    """The turns of a marked dialogue in any of the dialects. Raises Unusable when there are none."""
    if "<|im_start|>" in text:
        turns = [_turn(role, content.strip()) for role, content in _CHATML.findall(text)]
    elif "[INST]" in text:
        turns = _llama2(text)
    else:
        turns = _split(text, _HH if is_hh(text) else _GUANACO)
    if not turns:
        raise Unusable("no_answer", text[:120])
    return turns


def _split(text: str, marks: re.Pattern[str]) -> list[Turn]:
    found = list(marks.finditer(text))
    ends = [mark.start() for mark in found[1:]] + [len(text)]
    return [
        _turn(mark.group(1), text[mark.end() : end].strip()) for mark, end in zip(found, ends, strict=True)
    ]


def _turn(word: str, content: str) -> Turn:
    role = _WORDS.get(word.lower())
    if role is None or role == "call":
        raise Unusable("unknown_role", word[:80])
    return {"role": role, "content": content}


def _llama2(text: str) -> list[Turn]:
    turns: list[Turn] = []
    for asked, answered in _LLAMA2.findall(text):
        system = _SYSTEM.search(asked)
        if system is not None:
            turns.append({"role": "system", "content": system.group(1).strip()})
            asked = _SYSTEM.sub("", asked)
        turns.append({"role": "user", "content": asked.strip()})
        if answered.strip():
            turns.append({"role": "assistant", "content": answered.strip()})
    return turns
