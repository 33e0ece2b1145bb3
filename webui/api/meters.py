"""How busy the machine and its runs are, measured between two looks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psutil

from core.runs.states import read_status

if TYPE_CHECKING:
    from core.runs.folder import Run
    from webui.api.here import Here


class Meters:
    """Keeps the processes it saw, since a share of processor time is a difference of two looks."""

    every = 2.0
    """Seconds between two looks."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._lock = threading.Lock()
        self._known: dict[int, psutil.Process] = {}
        psutil.cpu_percent(None)

    def load(self, watched: Sequence[Run] = ()) -> dict[str, Any]:
        """The load now; per run for those that are watched. Bytes, and percent."""
        with self._lock:
            memory, machine = psutil.virtual_memory(), self._here.machine()
            home = self._here.home
            disk = psutil.disk_usage(str(next(place for place in (home, *home.parents) if place.exists())))
            runs = {run.id: used for run in watched if (used := self._run(run)) is not None}
            return {
                "cpu_percent": psutil.cpu_percent(None),
                "memory_used": max(0, machine.memory - min(memory.available, machine.memory)),
                "memory": machine.memory,
                "disk": disk.total,
                "disk_free": disk.free,
                "gpus": [
                    {"index": gpu.index, "memory_used": gpu.memory - gpu.memory_free, "memory": gpu.memory}
                    for gpu in machine.gpus
                ],
                "per_run": runs,
            }

    def _run(self, run: Run) -> dict[str, Any] | None:
        """What the training process and its children use; None when there is none."""
        try:
            status = read_status(run)
        except OSError:
            return None
        child = status.record.get("child")
        if status.over or not isinstance(child, int):
            return None
        cpu, memory = 0.0, 0
        try:
            first = self._process(child)
            for process in (first, *(self._process(one.pid) for one in first.children(recursive=True))):
                cpu += process.cpu_percent(None)
                memory += process.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass  # ended between two looks
        return {"cpu_percent": round(cpu, 1), "memory": memory}

    def _process(self, pid: int) -> psutil.Process:
        known = self._known.get(pid)
        if known is None or not known.is_running():
            known = self._known[pid] = psutil.Process(pid)
            if len(self._known) > 1000:
                self._known = {pid: known}
        return known
