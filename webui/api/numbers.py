"""The numbers of a run as series. What was read stays in memory, so that a page that asks again reads only the rest."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import orjson

from core.runs.folder import Run
from core.runs.journal import read_lines
from webui.api.lines import size_of

KEPT = 64
"""Runs whose series stay in memory; 10 series of 10,000 points take 1.6 MB."""


@dataclass
class Series:
    """One metric: steps that only grow, and its value at each."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: float, value: float) -> None:
        """Append; a step that was there already is where a resumed attempt began again, and replaces what followed."""
        if self.steps and step <= self.steps[-1]:
            at = bisect_left(self.steps, step)
            del self.steps[at:], self.values[at:]
        self.steps.append(step)
        self.values.append(value)

    def thinned(self, points: int) -> list[list[float]]:
        """At most about `points` points: of each stretch the lowest and the highest, and both ends."""
        count = len(self.steps)
        if count <= points:
            return [self.steps.tolist(), self.values.tolist()]
        stretches = max(1, (points - 2) // 2)
        chosen = {0, count - 1}
        for number in range(stretches):
            begin, end = number * count // stretches, (number + 1) * count // stretches
            part = self.values[begin:end]
            chosen.add(begin + part.index(min(part)))
            chosen.add(begin + part.index(max(part)))
        order = sorted(chosen)
        return [[self.steps[at] for at in order], [self.values[at] for at in order]]


@dataclass
class Numbers:
    """All series of one run, up to a byte of its events."""

    offset: int = 0
    total: int = 0
    series: dict[str, Series] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read_on(self, run: Run) -> None:
        """Take in what was written since the last time."""
        if size_of(run.events) < self.offset:
            self.offset, self.total, self.series = 0, 0, {}
        while True:
            lines, reached = read_lines(run.events, self.offset)
            for line in lines:
                if b'"metric"' in line.content:
                    self._hear(line.content)
            if reached == self.offset:
                return
            self.offset = reached

    def _hear(self, content: bytes) -> None:
        try:
            record: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            return
        if not isinstance(record, dict) or record.get("event") != "metric":
            return
        step, values = record.get("step"), record.get("values")
        if not isinstance(step, (int, float)) or not isinstance(values, dict):
            return
        self.total += 1
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self.series.setdefault(name, Series()).add(float(step), float(value))


_kept: OrderedDict[str, Numbers] = OrderedDict()
_lock = threading.Lock()


def numbers_of(run: Run) -> Numbers:
    """The series of a run as they are now."""
    with _lock:
        found = _kept.setdefault(str(run.path), Numbers())
        _kept.move_to_end(str(run.path))
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    with found.lock:
        found.read_on(run)
    return found


def series(run: Run, points: int, names: Collection[str] | None = None) -> dict[str, Any]:
    """The series for a chart: {series: {name: [steps, values]}, next, total}."""
    found = numbers_of(run)
    with found.lock:
        wanted = {name: one for name, one in found.series.items() if names is None or name in names}
        thin = {name: one.thinned(points) for name, one in wanted.items()}
        return {"series": thin, "next": found.offset, "total": found.total}


def last_values(run: Run) -> dict[str, float]:
    """The newest value of every metric."""
    found = numbers_of(run)
    with found.lock:
        return {name: one.values[-1] for name, one in found.series.items() if one.values}
