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
        told = {one.field for one in findings}
        later = checks.check(place(job), machine, home, full=full)
    except FactoryError as error:
        return list(error.findings)
    return findings + [one for one in later if one.field is None or one.field not in told]


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
