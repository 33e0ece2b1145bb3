"""All runs of a home at a glance, cheap enough for thousands: a small file and at most a lock each. Stdlib only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.job.advice import Card
from core.runs.cards import card_of
from core.runs.folder import Run, list_runs
from core.runs.queue import Queue
from core.runs.states import ENDS, Status, last_step, read_status


@dataclass(frozen=True)
class Row:
    """One run in a list."""

    status: Status
    step: int | None
    place: int | None = None
    """Place in the machine's queue, 1 is next; None when it does not wait."""

    @property
    def card(self) -> Card | None:
        """The error card of a run that failed, is lost, or waits long."""
        since = self.status.record.get("since")
        return card_of(self.status, waited=time.time() - since if isinstance(since, float) else 0.0)

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts may rely on, and a few more."""
        status, record = self.status, self.status.record
        return {
            "id": status.run.id,
            "name": record.get("name"),
            "stage": record.get("stage"),
            "state": status.state,
            "step": self.step,
            "total_steps": record.get("total_steps"),
            "started": record.get("started"),
            "path": str(status.run.path),
            "attempt": status.attempt,
            "created": record.get("created"),
            "ended": record.get("ended"),
            "user": record.get("user"),
            "slots": record.get("slots") or [],
            "place": self.place,
            "checkpoint": record.get("checkpoint"),
            "reason": status.reason,
            "why": status.why,
            "orphans": status.orphans,
            "card": card.to_json() if (card := self.card) else None,
        }


def rows(home: Path) -> list[Row]:
    """Every run of the home, oldest first. Raises FactoryError when the home cannot be read."""
    places: Mapping[str, int] | None = None
    found = []
    for run in list_runs(home):
        with contextlib.suppress(FileNotFoundError):  # deleted while we looked
            status = read_status(run)
            if status.state == "queued" and places is None:
                places = {ticket.key: place for place, ticket in enumerate(Queue().line(), start=1)}
            place = (places or {}).get(str(status.record.get("ticket"))) if status.state == "queued" else None
            found.append(Row(status, _step(run, status), place))
    return sorted(found, key=lambda row: row.status.record.get("created") or 0.0)


def row(run: Run, status: Status) -> Row:
    """The row of one run whose status is known."""
    place = None
    if status.state == "queued":
        tickets = enumerate(Queue().line(), start=1)
        place = next((place for place, ticket in tickets if ticket.key == status.record.get("ticket")), None)
    return Row(status, _step(run, status), place)


def _step(run: Run, status: Status) -> int | None:
    if status.state in ENDS:
        step: int | None = status.record.get("step")
        return step
    return None if status.state == "queued" and status.attempt == 1 else last_step(run)
