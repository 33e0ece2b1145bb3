"""Everything that is wrong with the text of a job, and the fixes that findings bring along, applied to the text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from core.job import checks
from core.job.edit import edited
from core.job.load import parse_leniently
from core.job.machine import Machine
from core.job.spec import JobSpec
from data.errors import FactoryError, Finding

FIX_ROUNDS = 5
"""A fix may bring out what another finding hid; more rounds than this would be fixes that undo each other."""


def all_findings(
    text: str,
    machine: Machine,
    home: Path,
    place: Callable[[JobSpec], JobSpec],
    *,
    overrides: Sequence[str] = (),
    origin: str = "the job",
    full: bool = False,
) -> list[Finding]:
    """What is wrong with the text, and with as much of the job as the text gives.

    `place` makes the job's paths absolute, and may refuse some.
    """
    try:
        job, findings = parse_leniently(text, overrides, origin)
        if job is None:
            return findings
        later = checks.check(place(job), machine, home, full=full)
    except FactoryError as error:
        return list(error.findings)
    told = {one.field for one in findings if one.field}
    return findings + [one for one in later if not _only_because(one, told)]


FOLLOWS = {
    "keep_best_without_eval": "data.eval",
    "eval_steps_without_eval": "data.eval",
    "early_stopping_without_eval": "data.eval",
    "rewards_missing": "rewards",
}
"""Findings about a field that is empty, which is no news where its text was refused and left out."""


def _only_because(finding: Finding, told: Collection[str]) -> bool:
    """Whether a finding only says again what is told of a field already, or follows from its being left out."""
    if finding.field is not None and finding.field in told:
        return True
    left_out = FOLLOWS.get(finding.code)
    return left_out is not None and any(
        field == left_out
        or field.startswith((f"{left_out}.", f"{left_out}["))
        or left_out.startswith(f"{field}.")
        for field in told
    )


def fixes(
    findings: Sequence[Finding], taken: Collection[str] = (), codes: Collection[str] | None = None
) -> dict[str, Any]:
    """The changes that findings bring along, the first for each field; notes are left to the reader.

    With `codes` only those of these findings, notes among them.
    """
    wanted: dict[str, Any] = {}
    for one in findings:
        asked = one.level != "note" if codes is None else one.code in codes
        if asked and one.fix and not set(one.fix) & {*taken, *wanted}:
            wanted |= one.fix
    return wanted


def fixed(
    text: str, look: Callable[[str], Sequence[Finding]], codes: Collection[str] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The text with fixes applied, round by round, and each change: field, value, code of the finding.

    `look` tells what is wrong with a text. Raises FactoryError when the text cannot be edited.
    """
    done: list[dict[str, Any]] = []
    for _ in range(FIX_ROUNDS):
        findings = look(text)
        wanted = fixes(findings, [one["field"] for one in done], codes)
        if not wanted:
            break
        by = {field: one.code for one in reversed(findings) for field in one.fix or ()}
        text = edited(text, wanted, is_json=text.lstrip().startswith("{"))
        done += [{"field": field, "value": value, "code": by.get(field)} for field, value in wanted.items()]
    return text, done
