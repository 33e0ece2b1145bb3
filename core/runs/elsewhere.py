"""What a run has beyond this machine: a note in its folder while something is there, and the command that ends it.

A launcher that reaches further writes the note (core/nodes); supervisors and readers only need to know that there is
something, what it is called, and how to end it. Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from core.runs.folder import Run
from core.runs.storage import read_json, write_json

NOTE = "elsewhere.json"
PATIENCE = 120.0
"""Seconds that ending may take: a cluster's manager may be slow, and says so itself after a minute."""
CHECKOUT = Path(__file__).resolve().parents[2]


def note(run: Run, what: str, **facts: Any) -> None:
    """Write down that `what` (`Slurm job 12`) is there from now on."""
    write_json(run.path / NOTE, {"what": what, "ended": None, **facts})


def over(run: Run, how: str) -> None:
    """Write down that nothing of it is left."""
    write_json(run.path / NOTE, {**noted(run), "ended": how})


def noted(run: Run) -> dict[str, Any]:
    """The note as it stands; empty when there is none or it cannot be read."""
    try:
        found = read_json(run.path / NOTE)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def left(run: Run) -> str | None:
    """What a run still has elsewhere, as far as its folder knows: `Slurm job 12`."""
    found = noted(run)
    return str(found.get("what")) if found and not found.get("ended") else None


def end(run: Run) -> str | None:
    """End what is left elsewhere; a sentence when that did not work."""
    what = left(run)
    argv = read_json(run.plan_json).get("ending") or []
    if what is None or not argv:
        return None
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            [*argv, str(run.path)],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{what} may still be there: ending it did not work ({problem})"
    words = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return None if done.returncode == 0 else (words[-1] if words else f"{what} may still be there")
