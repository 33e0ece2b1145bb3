"""The base of every JSON body: no field of another name, and no text that cannot be written."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from data.errors import FactoryError, Finding

_HALF = re.compile(r"[\ud800-\udfff]")
"""Half of a character of UTF-16: JSON can spell it alone, no file and no answer can hold it."""


class Body(BaseModel):
    """The base of what is sent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_characters(cls, value: Any) -> Any:
        where = half_character(value)
        if where is not None:
            text = f"{where or 'a name'} holds half a character (a lone surrogate); take it out."
            raise FactoryError(Finding("text_not_plain", text, field=where or None))
        return value


def half_character(value: Any) -> str | None:
    """The dotted place of the first text with half a character in plain values; None when all are whole."""
    waiting = [("", value)]
    while waiting:
        where, one = waiting.pop()
        if isinstance(one, str) and _HALF.search(one):
            return where
        if isinstance(one, dict):
            broken = next((key for key in one if isinstance(key, str) and _HALF.search(key)), None)
            if broken is not None:
                return where
            waiting += [(f"{where}.{key}".lstrip("."), inner) for key, inner in reversed(one.items())]
        elif isinstance(one, list):
            waiting += [(f"{where}[{place}]", inner) for place, inner in enumerate(one)]
    return None
