"""Runs as the pages show them: the list kept fresh without reading thousands of folders a second, and log lines."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.runs import listing
from core.runs.about import FILE, read_about
from core.runs.brief import Brief, read_brief
from core.runs.folder import Run
from core.runs.states import ENDS, Status
from core.runs.storage import read_json

ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_][0-?]*[ -/]*[@-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
"""Escape sequences and control characters: nothing a model or a library prints may drive what shows it."""
SECRETS = re.compile(r"\b(hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{16,}")
"""Keys as they look: a library that prints one in an error must not have it shown to everybody who may see the log."""
FRESH = 0.4
"""Seconds for which a list of runs is still the list of runs."""


def plain_line(line: str) -> str:
    """A log line as it would stand on a terminal in the end: of a progress bar's states the last, no escapes."""
    line = line.removesuffix("\r")
    line = ESCAPES.sub("", line.rsplit("\r", 1)[-1] if "\r" in line else line)
    return SECRETS.sub(r"\1…", line) if "_" in line or "-" in line else line


class RunList:
    """All runs of a home as rows. Safe to use from several threads; one of them reads, the others wait for it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._read = float("-inf")
        self._ended: dict[str, tuple[Any, dict[str, Any]]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Every run, newest first, at most FRESH seconds old. Raises FactoryError when the home cannot be read."""
        with self._lock:
            if time.monotonic() - self._read > FRESH:
                found = [self._row(row) for row in listing.rows(self.home)[::-1]]
                there = {row["id"] for row in found}
                self._ended = {id: kept for id, kept in self._ended.items() if id in there}
                self._rows, self._read = found, time.monotonic()
            return self._rows

    def forget(self) -> None:
        """Something was done to a run: read anew the next time."""
        self._read = float("-inf")

    def _row(self, row: listing.Row) -> dict[str, Any]:
        run = row.status.run
        if row.status.state not in ENDS:
            return run_row(row)
        key = (_mtime(run.state_json), _mtime(run.path / FILE))
        kept = self._ended.get(run.id)
        if kept is None or kept[0] != key:
            kept = self._ended[run.id] = (key, run_row(row))
        return kept[1]


def run_row(row: listing.Row) -> dict[str, Any]:
    """One run with what a person said about it, its newest numbers and what it trains."""
    run, status = row.status.run, row.status
    about, brief = read_about(run), _brief(status)
    return {
        **row.to_json(),
        "title": about.title,
        "tags": list(about.tags),
        "note": about.note,
        **_told(_job(run)),
        "step": row.step if row.step is not None else brief.step,
        "loss": _final(status, "loss", brief.loss),
        "eval_loss": _final(status, "eval_loss", brief.eval_loss),
        "tokens_per_second": brief.tokens_per_second,
        "duration": _duration(status),
        "left_seconds": None if status.over else brief.seconds_left(status.record.get("total_steps")),
    }


def row_of(run: Run, status: Status) -> dict[str, Any]:
    """The row of one run, without its place in the queue unless it waits."""
    return run_row(listing.row(run, status))


def _brief(status: Status) -> Brief:
    waits = status.state == "queued" and status.attempt == 1
    return Brief() if waits else read_brief(status.run)


def _final(status: Status, name: str, newest: float | None) -> float | None:
    values = status.record.get("values")
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, (int, float)) else newest


def _duration(status: Status) -> float | None:
    started, ended = status.record.get("started"), status.record.get("ended")
    if not isinstance(started, (int, float)):
        return None
    until = ended if isinstance(ended, (int, float)) else None if status.state == "lost" else time.time()
    return None if until is None else max(0.0, round(until - started, 1))


def _told(job: Mapping[str, Any]) -> dict[str, Any]:
    model, data = job.get("model"), job.get("data")
    name = model.get("name") if isinstance(model, Mapping) else model
    sources = data.get("sources") if isinstance(data, Mapping) else None
    first = sources[0] if sources else data
    path = (first.get("path") or first.get("name")) if isinstance(first, Mapping) else first
    more = f" +{len(sources) - 1}" if sources and len(sources) > 1 else ""
    method = job.get("method")
    return {
        "model": _short(name),
        "data": f"{_short(path)}{more}" if path else None,
        "method": method.get("name") if isinstance(method, Mapping) else method,
    }


def _short(name: Any) -> str | None:
    """The last part of a path; names and hub ids as they are."""
    if not isinstance(name, str):
        return None
    return Path(name).name if name.startswith("/") else name


def _job(run: Run) -> Mapping[str, Any]:
    try:
        job = read_json(run.job_json)
    except (OSError, ValueError):
        return {}
    return job if isinstance(job, Mapping) else {}


def _mtime(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
