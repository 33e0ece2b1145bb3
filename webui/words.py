"""All words of the board: one file a language in webui/text, keyed `page.thing`; what a language lacks is English."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TEXT = Path(__file__).resolve().parent / "text"
LANGUAGES: Mapping[str, str] = {"en": "en", "zh": "zh-CN"}
"""Our language codes, and the browser's names for them."""


@cache
def words(language: str = "en") -> Mapping[str, str]:
    """Every word of a language, English where it has none."""
    own: dict[str, str] = json.loads((TEXT / f"{language}.json").read_text("utf-8"))
    return own if language == "en" else {**words("en"), **own}


def word(key: str, language: str = "en") -> str:
    """One word. Raises KeyError when no language has it."""
    return words(language)[key]
