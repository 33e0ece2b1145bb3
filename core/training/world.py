"""The processes that train one job together, as torchrun's environment tells them; alone, a world of one.

Between the steps they agree through a small group of their own over the CPU: no strategy, and no library, sees it.
No torch at module level: a process knows who it is before the slow imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from core.runs.courier import events_file
from core.runs.events import Event, EventWriter
from core.runs.folder import Run
from data.errors import Finding

Answer = TypeVar("Answer")
_SET_PDEATHSIG = 1
"""prctl's number, from linux/prctl.h."""
POLL = 0.05
"""Seconds between two looks for what another process has finished."""


@dataclass(frozen=True)
class World:
    """One process among those of a job."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    node: int = 0
    launched: bool = False
    """Whether core.training.ranks started it, and hears of its end."""

    @property
    def first(self) -> bool:
        """Whether it is the one that writes events, checkpoints and the model."""
        return self.rank == 0


ALONE = World()
"""A process that trains by itself."""


def this_world() -> World:
    """Who this process is, from the environment that torchrun gives (torch 2.13)."""
    if "RANK" not in os.environ:
        return ALONE
    rank, local, size, node = (
        int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
    )
    return World(rank, local, max(1, size), node, True)


def die_with_parent() -> None:
    """Be told to stop when the process that started this one is gone. Linux only; elsewhere does nothing."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    expected = os.environ.get("FACTORY_RANKS_PID")
    if expected is not None and os.getppid() != int(expected):  # it died before the line above could see it
        os.kill(os.getpid(), signal.SIGTERM)


class Silence:
    """Takes the events of all processes but the first, and writes none."""

    def emit(self, event: Event) -> None:
        """Nothing."""


def writer_for(run: Run, world: World) -> EventWriter | Silence:
    """What writes the events of this process."""
    return EventWriter(events_file(run)) if world.first else Silence()


def folder_of(run: Run) -> Path:
    """Where the processes of this attempt leave word for each other and for the one that started them."""
    attempt = json.loads(run.attempt_json.read_text("utf-8"))["attempt"]
    return run.path / "ranks" / f"attempt-{attempt}"


def leave_word(run: Run, world: World, outcome: str, findings: Sequence[Finding] = (), **facts: Any) -> None:
    """Say how this process ends, for the one that started it. Raises OSError."""
    told = {
        "rank": world.rank,
        "outcome": outcome,
        "at": time.time(),
        "findings": [one.to_json() for one in findings],
        **facts,
    }
    folder = folder_of(run)
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f".rank-{world.rank}"
    half.write_text(json.dumps(told, default=str), "utf-8")
    half.replace(folder / f"rank-{world.rank}.json")


def first_alone(run: Run, world: World, name: str, work: Callable[[], Answer]) -> Answer:
    """Do work that fills a cache: the first process of each machine does it, then the others, who find it done."""
    if world.size == 1:
        return work()
    mark = folder_of(run) / f"{name}-{world.node}"
    while world.local_rank != 0 and not mark.exists():
        time.sleep(POLL)
    answer = work()
    if world.local_rank == 0:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return answer


class Council:
    """Agreement of all processes of a job at the same place of the program; alone, each is agreed with itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._group: Any = None

    def convene(self) -> None:
        """Make the group, as soon as the library has connected the processes; all of them must come here."""
        import torch.distributed as dist

        if self.world.size > 1 and self._group is None:
            self._group = dist.new_group(backend="gloo")

    def any(self, yes: bool) -> bool:
        """Whether one of them says yes."""
        return yes if self._group is None else bool(self._reduced(int(yes)))

    def firsts(self, yes: bool) -> bool:
        """What the first one says."""
        return self.any(yes and self.world.first)

    def wait(self) -> None:
        """Go on when all of them have come here."""
        self.any(False)

    def _reduced(self, value: int) -> int:
        import torch
        import torch.distributed as dist

        told = torch.tensor([value])
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._group)
        return int(told.item())


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Take leave of the other processes at the end, however it came; the libraries warn about those that just go."""
    try:
        yield
    finally:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "connection was likely closed",
    "nccl communicator was aborted",
    "remote process exited",
)


def lost_another(problem: BaseException) -> bool:
    """Whether a process failed only because another one it talked to was gone (gloo's and NCCL's words)."""
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    words = str(problem).lower()
    return bool(kinds & {"DistNetworkError", "DistStoreError"}) or any(word in words for word in _LOST)
