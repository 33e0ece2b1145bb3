"""Where a run is, in a few numbers from the end of its events: step, loss, pace. Cheap for files of any length."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.folder import Run
from core.runs.journal import parse

LOOK = 64 << 10
"""Bytes read from the end: some hundred metrics, or a few long samples with metrics between them."""


@dataclass(frozen=True)
class Brief:
    """The newest numbers of a run; None before the first."""

    step: int | None = None
    loss: float | None = None
    eval_loss: float | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None

    def seconds_left(self, total: int | None) -> float | None:
        """Seconds to the last of `total` steps at this pace; None before there is a pace."""
        if self.seconds_per_step is None or self.step is None or not total:
            return None
        return round(max(0, total - self.step) * self.seconds_per_step, 1)


def read_brief(run: Run) -> Brief:
    """The newest numbers of a run, from the last 64 KiB of its events. A missing file has none."""
    metrics = [record for record in _records(run.events) if record.get("event") == "metric"]
    steps = [one for one in metrics if _is_number(one.get("step"))]
    if not steps:
        return Brief()
    return Brief(
        int(steps[-1]["step"]),
        _newest(metrics, "loss"),
        _newest(metrics, "eval_loss"),
        _newest(metrics, "tokens_per_second"),
        _pace(steps),
    )


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOOK))
            lines = file.read(LOOK).split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[1:-1] if size > LOOK else lines[:-1]
    return [record for line in whole if (record := parse(line)) is not None]


def _newest(metrics: list[dict[str, Any]], name: str) -> float | None:
    for one in reversed(metrics):
        values = one.get("values")
        value = values.get(name) if isinstance(values, dict) else None
        if _is_number(value):
            return float(value)  # type: ignore[arg-type]
    return None


def _pace(steps: list[dict[str, Any]]) -> float | None:
    """Seconds a step over the metrics of the attempt that the newest one belongs to."""
    last = steps[-1]
    first = last
    for one in reversed(steps):
        # A resumed attempt begins at a lower step; a reboot sets the monotonic clock back.
        if (
            one["step"] > first["step"]
            or not _is_number(one.get("mono"))
            or one["mono"] > first.get("mono", 0)
        ):
            break
        first = one
    if last["step"] <= first["step"] or not _is_number(last.get("mono")):
        return None
    return float((last["mono"] - first["mono"]) / (last["step"] - first["step"]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
