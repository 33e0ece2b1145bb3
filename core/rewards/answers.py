"""Find the final answer in a completion, and compare it without any library: numbers, texts, choices."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

LookIn = Literal["auto", "text", "answer_tag", "boxed", "last_line"]

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,4})?|-?\.\d+")
_FRACTION = re.compile(r"(-?\d{1,15})\s{0,3}/\s{0,3}(\d{1,15})")
_NAMED_CHOICE = re.compile(
    r"(?:answer|option|choice)\s{0,3}(?:is|:|=)?\s{0,3}[*_(\[]{0,4}([A-J])(?![A-Za-z])", re.I
)
_LEADING_CHOICE = re.compile(r"[*_(\[]{0,4}([A-J])(?:[)\].:*_]|\s*$)")
_BRACKETED_CHOICE = re.compile(r"\(([A-J])\)")


def final_answer(completion: str, look_in: LookIn = "auto") -> str | None:
    """The part of a completion that answers; None where the asked-for mark is missing.

    auto: a \\boxed{…} inside the last <answer>…</answer>, else what is inside, else the last \\boxed{…}, else what
    stands after the last </think>.
    """
    text = completion.strip()
    if look_in == "text":
        return text
    if look_in == "last_line":
        return text.rpartition("\n")[2].strip()
    tagged = between(text, "<answer>", "</answer>") if look_in != "boxed" else None
    if look_in == "answer_tag":
        return tagged
    inside = boxed(text if tagged is None else tagged)
    if inside is not None or look_in == "boxed":
        return inside
    return text.rpartition("</think>")[2].strip() if tagged is None else tagged


def between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the last pair of two marks; None without a pair."""
    end = text.rfind(closing)
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    return text[start + len(opening) : end].strip() if start >= 0 else None


def boxed(text: str) -> str | None:
    """The content of the last \\boxed{…}, braces counted; None without one or when it is not closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for index in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : index].strip()
    return None


def number_in(text: str) -> float | None:
    """The number a text comes to: after `####` (GSM8K), else the last one; 1,000 and 3/4 are understood."""
    text = text.rpartition("####")[2]
    whole = _FRACTION.fullmatch(text.strip())
    if whole and int(whole[2]):
        return int(whole[1]) / int(whole[2])
    found = _NUMBER.findall(text)
    value = float(found[-1].replace(",", "")) if found else math.nan
    return value if math.isfinite(value) else None


def same_number(given: float, wanted: float, tolerance: float) -> bool:
    """Equal within `tolerance`, relative for large numbers and absolute near zero."""
    return abs(given - wanted) <= tolerance * max(1.0, abs(wanted))


def plain_text(text: str, *, case_sensitive: bool = False) -> str:
    """A text for exact comparison: Unicode NFKC, single spaces, no quotes or full stop around it."""
    line = " ".join(unicodedata.normalize("NFKC", text).split())
    line = line.strip("\"'`*“”‘’ ").removesuffix(".").strip("\"'`*“”‘’ ")
    return line if case_sensitive else line.casefold()


def choice_in(text: str, choices: Sequence[str] | None = None) -> str | None:
    """The letter A to J that a text chooses; with `choices`, also by repeating the text of one of them."""
    if choices:
        wanted = plain_text(text)
        same = [index for index, choice in enumerate(choices) if plain_text(str(choice)) == wanted]
        if len(same) == 1:
            return string.ascii_uppercase[same[0]]
    named = _NAMED_CHOICE.findall(text)
    if named:
        return str(named[-1]).upper()
    leading = _LEADING_CHOICE.match(text.strip())
    if leading:
        return leading[1]
    bracketed = _BRACKETED_CHOICE.findall(text)
    return str(bracketed[-1]) if bracketed else None


def choice_wanted(answer: Any, choices: Sequence[str] | None = None) -> str | None:
    """The letter that a row's answer means: a letter, the text of a choice, or with `choices` an index from 0."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        return string.ascii_uppercase[answer] if choices and 0 <= answer < min(len(choices), 10) else None
    text = str(answer).strip()
    letter = text.strip("()[].: ").upper()
    if len(letter) == 1 and letter in "ABCDEFGHIJ":
        return letter
    return choice_in(text, choices) if choices else None
