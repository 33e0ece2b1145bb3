"""Compare answers of mathematics with the library math-verify (sympy underneath)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any


class Task:
    """No settings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

        # The parent's clock ends this process; the library's own alarm would count a slow answer as a wrong one,
        # and it warns that it is off.
        logging.disable(logging.CRITICAL)
        self._parse, self._verify = (
            partial(parse, parsing_timeout=None),
            partial(verify, timeout_seconds=None),
        )
        self._extraction = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def about(self) -> None:
        """Nothing to tell."""

    def answer(self, request: dict[str, Any]) -> Iterator[str]:
        """For each [[text, ...], [gold, ...]] of {items}, the texts being readings of one answer: right, wrong, or
        no_gold when no gold can be read as mathematics."""
        for texts, golds in request["items"]:
            yield self._compare(texts, golds)

    def _compare(self, texts: list[str], golds: list[str]) -> str:
        read = [parsed for parsed in map(self._gold, golds) if parsed]
        if not read:
            return "no_gold"
        for text in texts:
            given = self._parse(text, extraction_config=self._extraction)
            if any(self._verify(gold, given) for gold in read):
                return "right"
        return "wrong"

    def _gold(self, gold: str) -> list[Any]:
        marked = "$" in gold or "\\boxed" in gold
        read: list[Any] = [] if marked else self._parse(f"${gold}$")
        return read or list(self._parse(gold))
