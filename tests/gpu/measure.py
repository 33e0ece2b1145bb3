"""Running a case through the command line and reading from the run's own events what it took."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.job.checks import check
from core.job.load import check_values
from core.job.machine import CHECKOUT, Machine, this_machine
from core.job.plan import make_plan
from data.errors import Finding
from tests.gpu.cases import Case

WARM = 3
"""First steps that are not counted: kernels are compiled and chosen in them."""


@dataclass(frozen=True)
class Measured:
    """What a case took."""

    state: str
    tokens_per_second: float | None = None
    peak: int | None = None
    """Bytes on the fullest GPU, beyond what was there before, as nvidia-smi sees them every half second."""
    losses: tuple[float, float] | None = None
    """First and last."""
    seconds: float | None = None
    reason: str = ""


def planned(
    case: Case, model: str, data: dict[str, str], machine: Machine, home: Path
) -> tuple[list[Finding], list[str]]:
    """What the checks say of a case on a machine, and the command of its plan."""
    asked = check_values(case.job(model, data))
    return check(asked, machine, home), make_plan(asked, home, machine).argv


def run(case: Case, model: str, data: dict[str, str], home: Path) -> Measured:
    """Train the case and measure it; the GPU is empty before and after."""
    file = home / f"{case.name}.json"
    file.write_text(json.dumps(case.job(model, data)), "utf-8")
    words = [sys.executable, "-m", "core.cli", "--home", str(home), "train", str(file), "--json"]
    with peak_memory() as peak:
        done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        return Measured("refused", reason=(done.stderr.strip().splitlines() or ["no words"])[0])
    outcome = json.loads(done.stdout.splitlines()[-1])
    events = [
        json.loads(line) for line in (Path(outcome["path"]) / "events.jsonl").read_text("utf-8").splitlines()
    ]
    return measured(outcome, events, max(peak, default=None))


def measured(outcome: dict[str, Any], events: list[dict[str, Any]], peak: int | None) -> Measured:
    """The numbers of a run from its outcome and events."""
    metrics = [(one["step"], one["values"], one["t"]) for one in events if one.get("event") == "metric"]
    rates = [
        values["tokens_per_second"]
        for step, values, _ in metrics
        if step > WARM and "tokens_per_second" in values
    ]
    losses = [values["loss"] for _, values, _ in metrics if "loss" in values]
    return Measured(
        state=outcome["state"],
        tokens_per_second=statistics.median(rates) if rates else None,
        peak=peak,
        losses=(losses[0], losses[-1]) if losses else None,
        seconds=metrics[-1][2] - metrics[0][2] if len(metrics) > 1 else None,
        reason=outcome.get("reason") or "",
    )


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """A list that grows by what the fullest GPU holds beyond its first reading, every half second."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        before = _used()
        while not over.wait(0.5):
            seen.append(max((now - was for now, was in zip(_used(), before, strict=True)), default=0))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _used() -> list[int]:
    return [gpu.memory - gpu.memory_free for gpu in this_machine().gpus]
