"""Match a pattern against texts, with the library `regex` (it can be stopped inside one match)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import regex


class Task:
    """Settings: {pattern, whole, flags}. Raises regex.error when the pattern is wrong."""

    def __init__(self, settings: dict[str, Any]) -> None:
        flags = sum(getattr(regex, name) for name in settings["flags"])
        pattern = regex.compile(settings["pattern"], flags)
        self._match = pattern.fullmatch if settings["whole"] else pattern.search

    def about(self) -> None:
        """Nothing to tell."""

    def answer(self, request: dict[str, Any]) -> Iterator[bool]:
        """Whether each text of {items} matches; one that takes longer than the parent waits ends this process."""
        for text in request["items"]:
            yield self._match(text) is not None
