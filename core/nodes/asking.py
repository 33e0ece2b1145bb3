"""Asking a program of the cluster something: an argument list, a time limit, an answer in words. No shell."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 30.0
"""Seconds that a question may take: a busy slurmctld answers within a few."""


@dataclass(frozen=True)
class Answer:
    """What a program said. `code` is None when it is not there or did not answer in time."""

    code: int | None
    out: str
    err: str

    @property
    def good(self) -> bool:
        """Whether it did what was asked."""
        return self.code == 0

    @property
    def words(self) -> str:
        """Its own words about what went wrong, in one line."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        said = "; ".join(line.partition("error: ")[2] or line for line in lines)[:500]
        return said or f"exit code {self.code} and no word"


def ask(argv: Sequence[str], *, folder: Path | None = None, patience: float = PATIENCE) -> Answer:
    """Run a command to its end, within `patience` seconds; whatever happens is an answer, nothing is raised."""
    try:
        done = subprocess.run(
            list(argv),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        return Answer(None, "", f"{argv[0]} is not installed on this machine")
    except subprocess.TimeoutExpired:
        return Answer(None, "", f"{argv[0]} did not answer within {patience:.0f} s")
    except OSError as error:
        return Answer(None, "", f"{argv[0]} could not be started: {error.strerror}")
    return Answer(done.returncode, done.stdout, done.stderr)
