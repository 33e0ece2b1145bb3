"""Why a run is in its state: a sentence that also knows its code, so that readers of another language have theirs."""

from __future__ import annotations

import json
from typing import Any


class Reason(str):
    """The sentence in English; `code` and `params` are those of a finding."""

    code: str
    params: dict[str, Any]

    @property
    def told(self) -> dict[str, Any]:
        """What is written beside the sentence."""
        return {"code": self.code, "params": self.params}


def because(code: str, message: str, **params: Any) -> Reason:
    """The reason with this code; its params become what JSON can hold."""
    made = Reason(message)
    made.code, made.params = code, json.loads(json.dumps(params, default=str))
    return made


def told_of(reason: str | None) -> dict[str, Any] | None:
    """Code and params of a reason that has some."""
    return reason.told if isinstance(reason, Reason) else None
