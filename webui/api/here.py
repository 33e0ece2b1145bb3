"""What the routes share: the settings, the list of runs, the machine, and how a run is found by its id."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from core.job.machine import Machine, this_machine
from core.runs.folder import ID, Run
from data.errors import refuse
from webui.api.shown import RunList
from webui.settings import Settings

ID_PATTERN = f"^{ID.pattern}$"
MACHINE_FRESH = 5.0
"""Seconds for which a look at the machine holds: nvidia-smi takes its time."""


class Here:
    """One per server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.home = settings.home
        self.runs = RunList(settings.home)
        self._lock = threading.Lock()
        self._machine: Machine | None = None
        self._looked = 0.0

    def machine(self) -> Machine:
        """This machine, as it was at most some seconds ago."""
        with self._lock:
            if self._machine is None or time.monotonic() - self._looked > MACHINE_FRESH:
                self._machine, self._looked = this_machine(), time.monotonic()
            return self._machine

    def run(self, id: str) -> Run:
        """The run of exactly this id. Raises FactoryError: a request never means a run by half its name."""
        run = Run(self.home / "runs" / id)
        if not ID.fullmatch(id) or run.path.is_symlink() or not run.job_json.is_file():
            raise refuse(
                "run_not_found", f"There is no run {id[:80]!r}; it may have been deleted.", value=id[:80]
            )
        return run


def _here(request: Request) -> Here:
    here: Here = request.app.state.here
    return here


def _run(
    id: Annotated[str, Path(pattern=ID_PATTERN, description="A run's whole id.")], request: Request
) -> Run:
    return _here(request).run(id)


InHere = Annotated[Here, Depends(_here)]
"""A route's parameter: what the routes share."""
TheRun = Annotated[Run, Depends(_run)]
"""A route's parameter: the run named in the path."""
Json = dict[str, Any]
