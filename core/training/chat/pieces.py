"""Token ids into text that can be shown while more come: no broken characters, nothing of a stop text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BROKEN = "\ufffd"
"""What a decoder makes of bytes that are no whole character yet."""
LOOK_BACK = 6
"""Tokens decoded again with each new one: some tokenizers write a blank by what stands before it."""


class Pieces:
    """Turns tokens into pieces of text; all pieces together are the decoded answer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._begin = self._told = 0

    def add(self, token: int) -> str:
        """The text that is certain now that this token is there; empty while a character is not whole."""
        self._ids.append(token)
        told, now = self._decode(self._begin, self._told), self._decode(self._begin, len(self._ids))
        if now.endswith(BROKEN) or len(now) <= len(told):
            return ""
        self._begin = max(self._begin, len(self._ids) - LOOK_BACK)
        # The window moves only where it changes nothing that was told.
        while self._begin and self._decode(self._begin, len(self._ids))[:1] == BROKEN:
            self._begin -= 1
        self._told = len(self._ids)
        return now[len(told) :]

    def rest(self) -> str:
        """What is left when no more tokens come, without the bytes of a character that never became whole."""
        told, now = self._decode(self._begin, self._told), self._decode(self._begin, len(self._ids))
        self._told = len(self._ids)
        return now[len(told) :].rstrip(BROKEN)

    def _decode(self, begin: int, end: int) -> str:
        ids = self._ids[begin:end]
        return str(
            self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            if ids
            else ""
        )


class Stops:
    """Cuts a stream of text at the first of some stop texts, holding back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None

    def add(self, text: str) -> str:
        """What may be shown of everything so far; nothing once a stop text was met."""
        if self.hit is not None:
            return ""
        self._held += text
        found = [
            (self._held.find(stop) + len(stop), -len(stop), stop)
            for stop in self._stops
            if stop in self._held
        ]
        if found:
            end, _, self.hit = min(found)  # the one that is whole first, however the text was chopped
            shown, self._held = self._held[: end - len(self.hit)], ""
            return shown
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back and became no stop text."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """How many of the last characters are the beginning of a stop text."""
        most = min(len(stop) - 1, len(self._held))
        return next((size for size in range(most, 0, -1) if self._held.endswith(stop[:size])), 0)
