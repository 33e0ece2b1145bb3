"""Whether a model fits into memory beside what is there, training runs first: they get what their plan says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.chat.speakers import Speaker
from core.job.machine import Machine
from core.job.memory import CPU_FRAMEWORK, GIB, GPU_FRAMEWORK
from core.job.models import locate
from core.job.shape import shape_of
from core.runs.folder import Run, list_runs
from core.runs.states import read_status
from data.errors import FactoryError, refuse

KEPT_FREE = GIB // 2
"""Bytes that nobody takes: the page cache, and the answers' own caches."""
CHATS = 2
"""Conversations of full length whose caches must fit beside the weights; longer contexts count as 8,192 tokens."""


@dataclass(frozen=True)
class Need:
    """What a model takes once it is loaded, bytes. `half` where it only fits in 16 bits."""

    full: float
    half: float


def need_of(speaker: Speaker, home: Path, *, gpu: bool) -> Need | None:
    """The memory of a speaker's weights, caches and process; None where its files do not tell.

    Raises FactoryError when the model is not there, or its files are broken.
    """
    try:
        place = locate(speaker.name, home, revision=speaker.revision)
    except FactoryError as problem:
        raise _base_gone(speaker, problem) if speaker.adapters else problem from None
    shape = shape_of(place)
    if shape is None:
        return None
    adapters = sum(_bytes(Path(folder)) for folder in speaker.adapters)
    context = min(shape.context or 8192, 8192)
    fixed = (GPU_FRAMEWORK if gpu else CPU_FRAMEWORK) + adapters
    one = {size: shape.parameters * size + CHATS * context * shape.kv_bytes(size) for size in (2, 4)}
    return Need(full=fixed + one[2 if gpu else 4], half=fixed + one[2])


def training(home: Path) -> list[Run]:
    """The runs that train now."""
    return [run for run in list_runs(home) if read_status(run).state in ("starting", "running", "stopping")]


def free_for_chat(home: Path, machine: Machine, *, gpu: bool) -> float:
    """Bytes that may be taken without touching what running trainings still need."""
    if gpu:
        free = max((one.memory_free for one in machine.gpus), default=0)
        return max(0.0, free - KEPT_FREE - _still_wanted(home, gpu=True))
    return max(0.0, machine.memory_free - KEPT_FREE - _still_wanted(home, gpu=False))


def _still_wanted(home: Path, *, gpu: bool) -> float:
    """What the plans of running trainings say they will take, beyond what they hold already."""
    wanted = 0.0
    for run in training(home):
        told = _forecast(run)
        if (told.get("device", "cpu") != "cpu") == gpu:
            held = _held(read_status(run).record.get("child")) if not gpu else 0.0
            wanted += max(0.0, float(told.get("memory_total") or 0) - held)
    return wanted


def _forecast(run: Run) -> dict[str, Any]:
    try:
        plan = json.loads(run.plan_json.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    told = plan.get("forecast") if isinstance(plan, dict) else None
    return told if isinstance(told, dict) else {}


def _held(pid: Any) -> float:
    import psutil

    try:
        return float(psutil.Process(pid).memory_info().rss) if isinstance(pid, int) else 0.0
    except psutil.Error:
        return 0.0


def check_room(speaker: Speaker, home: Path, machine: Machine, *, gpu: bool) -> bool:
    """Refuse a model that does not fit; True when it has to be held in 16 bits to fit.

    Raises FactoryError naming what it needs, what there is, and what to do.
    """
    need = need_of(speaker, home, gpu=gpu)
    if need is None:
        return False
    free = free_for_chat(home, machine, gpu=gpu)
    if need.full <= free:
        return False
    if need.half <= free:
        return True
    runs = training(home)
    beside = (
        f" beside {'the training' if len(runs) == 1 else f'{len(runs)} trainings'} that goes on"
        if runs
        else ""
    )
    text = (
        f"{speaker.title} takes {need.half / GIB:.1f} GiB and {free / GIB:.1f} GiB of memory are free{beside}; "
        "close other models or programs, or wait for the run to end."
    )
    raise refuse("memory_too_small", text, value=speaker.key, needed=int(need.half), free=int(free))


def _base_gone(speaker: Speaker, problem: FactoryError) -> FactoryError:
    text = (
        f"{speaker.title} is an adapter, and the model it belongs to cannot be had any more "
        f"({problem.findings[0].message.rstrip('.')}); put that model back, or talk to a merged export."
    )
    return refuse("base_gone", text, value=speaker.name)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
