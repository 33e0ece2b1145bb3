"""What a run's supervisor does when the model is there: the exports that the job asks for, one after the other.

A failed export does not undo the training: the run has succeeded, and says which export it lacks and why. Standard
library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.runs import exports
from core.runs.folder import Run
from core.runs.states import Book
from data.errors import FactoryError


def make_exports(
    run: Run,
    specs: list[Mapping[str, Any]],
    book: Book,
    *,
    stopped: Callable[[], bool],
    pause: Callable[[], None],
) -> str | None:
    """Make each export; a sentence about those that are missing, or None when all are there.

    `stopped` tells that somebody asked to end the run, `pause` waits a moment. What was made stands in the
    book's record under `exports`.
    """
    made: list[dict[str, Any]] = []
    missing: list[str] = []
    for spec in specs:
        target = str(spec["name"])
        if stopped():
            missing.append(f"export {target} was not begun, as the run was asked to stop")
            continue
        book.journal.append({"event": "phase", "name": "exporting", "text": f"Exporting {target}"})
        end = _make(run, spec, stopped, pause)
        if isinstance(end, str):
            missing.append(f"export {target} failed: {end}")
        else:
            made.append({"name": end.name, "target": target, "path": str(end.path)})
    if missing:
        for sentence in missing:
            book.warn("export_failed", f"{sentence[0].upper()}{sentence[1:]}")
    book.record["exports"] = made
    book.record["exports_missing"] = missing
    return f"trained, but {'; '.join(missing)}" if missing else None


def _make(
    run: Run, spec: Mapping[str, Any], stopped: Callable[[], bool], pause: Callable[[], None]
) -> exports.Export | str:
    """The finished export, or why there is none."""
    try:
        begun, child = exports.start(run, spec)
    except FactoryError as problem:
        return str(problem)
    while child.poll() is None:
        if stopped():
            exports.cancel(begun)
            child.wait()
            return "it was cancelled, as the run was asked to stop"
        pause()
    ended = exports.find_export(run, begun.name)
    if ended is not None and ended.state == "done":
        return ended
    return ended.error["message"] if ended is not None and ended.error else exports.KILLED


def wanted(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The exports of a resolved job as plain values; a job of an older version has none."""
    found = job.get("export")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
