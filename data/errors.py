"""What can be wrong, in one vocabulary for the whole house.

A `Finding` is a fact about a job, a file or a run: a stable code, the field, the value, a sentence
with what to do, and where possible a fix. A `FactoryError` stops work and carries one or more findings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing worth telling. `code` and `params` are stable: translations and scripts hang on them.

    `field` is a dotted path into the job spec (`train.learning_rate`) or None; `fix` maps dotted paths
    to the values that would settle the finding.
    """

    code: str
    message: str
    level: Level = "error"
    field: str | None = None
    value: Any = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fix: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON data, keys in the order of the REST and `--json` contract."""
        plain = asdict(self)
        return {key: plain[key] for key in ("code", "params", "level", "field", "value", "message", "fix")}


class FactoryError(Exception):
    """A refusal in words for the user: what happened, the value, what to do. Carries all findings at once."""

    def __init__(self, findings: Finding | Sequence[Finding]) -> None:
        self.findings: tuple[Finding, ...] = (findings,) if isinstance(findings, Finding) else tuple(findings)
        super().__init__("\n".join(f.message for f in self.findings))


def refuse(
    code: str,
    message: str,
    *,
    field: str | None = None,
    value: Any = None,
    fix: Mapping[str, Any] | None = None,
    **params: Any,
) -> FactoryError:
    """A FactoryError with a single error finding, for `raise refuse(...)`."""
    return FactoryError(Finding(code, message, "error", field, value, params, fix))


def findings_of(plain: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Findings from their plain form."""
    return [Finding(**{**one, "params": one["params"] or {}}) for one in plain]
