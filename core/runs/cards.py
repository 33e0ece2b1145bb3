"""The error card of a run: what ended it, and the command that mends it. Stdlib only."""

from __future__ import annotations

from typing import Any

from core.job.advice import Card, card
from core.runs.folder import Run
from core.runs.states import Status, last_checkpoint
from core.runs.storage import read_json

WAITS_LONG = 600.0
"""Seconds in the queue from which a run counts as stuck."""


def card_of(status: Status, *, waited: float = 0.0) -> Card | None:
    """The card of a run that failed, is lost, or has waited long; None when there is nothing to advise."""
    code = status.fault
    if status.state == "queued" and waited > WAITS_LONG:
        code = "queue_stuck"
    return card_for(status.run, code)


def card_for(run: Run, code: str | None) -> Card | None:
    """The card for a fault of a run. A damaged job.json only costs the settings in the command."""
    if code is None:
        return None
    return card(
        code, _job(run), id=run.id, job_file=str(run.job_json), checkpoint=last_checkpoint(run) is not None
    )


def _job(run: Run) -> dict[str, Any]:
    try:
        job = read_json(run.job_json)
    except (OSError, ValueError):
        return {}
    return job if isinstance(job, dict) else {}
