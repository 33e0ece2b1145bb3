"""Engine auto: which engine trains a job on a machine, and how its devices share the work where the user left it open.

The guide of the field: plain TRL for one device or research, Unsloth for adapters on one GPU, DeepSpeed's ZeRO where a
model must be shared out, OpenRLHF for reinforcement learning that needs it, verl beyond one machine and for mixtures of
experts. What needs what is decided by the forecast of this very job (core/job/memory.py), not by a table of sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from core.engines import ENGINES, engine_module
from core.job.case import Case
from core.job.environments import environment
from core.job.forecast import Lengths, Verdict, batch_of, device_of, judge, place_of
from core.job.hardware import HardwareSpec, StrategyName
from core.job.launcher_checks import elsewhere
from core.job.machine import Machine, installed
from core.job.memory import ONLINE, Memory, memory
from core.job.models import locate
from core.job.presets import resolve
from core.job.shape import ModelShape
from core.job.spec import JobSpec
from core.methods import ADAPTERS
from data.errors import FactoryError, Finding
from data.words import byte_size

SHARING: tuple[StrategyName, ...] = ("deepspeed-2", "deepspeed-3")
"""Strategies that are looked at, the faster first; stage 1 saves little more than ddp."""
OPENRLHF, VERL = "engine openrlhf", "engine verl"
"""What the field takes and nobody has built here yet."""


@dataclass(frozen=True)
class Choice:
    """A job with its engine settled."""

    job: JobSpec
    reason: str
    """Why, in one sentence with numbers."""
    planned: tuple[str, ...] = ()
    """Engines that would suit it better and are planned."""

    @property
    def finding(self) -> Finding:
        """The reason as something to tell."""
        name = self.job.engine.name
        return Finding("engine_chosen", self.reason, "note", "engine", name)


def settled(job: JobSpec, machine: Machine, home: Path, lengths: Lengths | None = None) -> Choice | None:
    """The choice for a job that leaves its engine open; None for one that names it. Reads files, starts nothing."""
    if job.engine.name != "auto":
        return None
    if elsewhere(job):
        return Choice(
            _with(job, "trl"), "engine trl: it runs on machines whose memory cannot be seen from here."
        )
    try:
        model = locate(job.model.name, home, revision=job.model.revision)
    except FactoryError:  # told by the checks
        model = None
    case = Case(job, machine, home, model)
    here = {name for name in ENGINES.names if _is_here(name, home)} | (
        {"deepspeed"} if installed("deepspeed") else set()
    )
    return choose(job, machine, case.shape, lengths or (case.lengths if case.shape else None), here)


def _is_here(engine: str, home: Path) -> bool:
    own = engine_module(engine).ENVIRONMENT
    return own is None or environment(own).installed(home)


def choose(
    job: JobSpec, machine: Machine, shape: ModelShape | None, lengths: Lengths | None, here: Collection[str]
) -> Choice:
    """The engine for a job, and devices and strategy where it leaves them empty. Pure.

    `here` names what is installed: engines, deepspeed. Without the model's shape nothing can be forecast, and plain TRL
    takes the job as it is.
    """
    if shape is None:
        reason = "engine trl: nothing of the model is on this machine yet to forecast its memory from."
        return Choice(_with(job, "trl"), reason)
    found = list(_ways(job, machine, shape, lengths, here))
    found = [
        _by_unsloth(way, here) for way in found or [Way(_with(job, "trl"), machine, shape, lengths, here)]
    ]
    fitting = next((way for limit in ("fits", "tight") for way in found if way.verdict == limit), None)
    if fitting is None:
        return _too_large(min(found, key=lambda way: way.share), found[0])
    if fitting.job.engine.name == "unsloth":
        return _unsloth(fitting)
    if fitting.alone:
        return Choice(fitting.job, f"engine trl: {fitting.words}; {_against_unsloth(fitting, here)}.")
    return _shared(fitting, found[0])


@dataclass(frozen=True)
class Way:
    """One way to run a job, with what the forecast says of it."""

    job: JobSpec
    machine: Machine
    shape: ModelShape
    lengths: Lengths | None
    here: Collection[str] = field(default=())

    @cached_property
    def resolved(self) -> JobSpec:
        """The job with its presets."""
        parameters = self.shape.parameters
        return resolve(self.job, parameters=parameters, gpu=self.machine.has_gpu).job

    @cached_property
    def needed(self) -> float:
        """Bytes on one device at its fullest."""
        return self._memory.total

    @cached_property
    def _memory(self) -> Memory:
        job = self.resolved
        return memory(job, self.shape, batch_of(job, self.lengths), place_of(job, self.machine))

    @cached_property
    def available(self) -> int:
        """Bytes of one device."""
        return device_of(self.resolved, self.machine)[0]

    @property
    def share(self) -> float:
        """Needed of available, on a device or in the machine's memory, whichever is scarcer."""
        host = self._memory.host / max(1, self.machine.memory)
        return max(self.needed / max(1, self.available), host)

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return judge(self.share, 1)

    @property
    def alone(self) -> bool:
        """Whether one process trains the whole model on one device."""
        return self.resolved.hardware.sharing == "none"

    @property
    def where(self) -> str:
        """One device in words."""
        if not self.machine.has_gpu:
            return "the CPU's" if self.job.hardware.processes == 1 else "each process's part of the CPU's"
        return "one GPU's" if self.job.hardware.processes == 1 else "each GPU's"

    @property
    def size(self) -> str:
        """The work in words: `full training of 8.0 billion weights`."""
        what = {"full": "full training", "freeze": "training the last layers"}.get(self.job.method.name)
        return f"{self.job.stage.name} with {what or self.job.method.name} of {_count(self.shape.parameters)} weights"

    @property
    def takes(self) -> str:
        """Need and room in words."""
        told = f"{byte_size(self.needed)} of {self.where} {byte_size(self.available)}"
        if self._memory.host > self.machine.memory * self.needed / max(1, self.available):
            told += f" and {byte_size(self._memory.host)} of the machine's {byte_size(self.machine.memory)}"
        return told

    @property
    def words(self) -> str:
        """The work with its need in words."""
        return f"{self.size} takes {self.takes}"


def _ways(
    job: JobSpec, machine: Machine, shape: ModelShape, lengths: Lengths | None, here: Collection[str]
) -> Iterator[Way]:
    """Ways from the plainest to the slowest; what the user has set is the same in all of them."""
    asked = job.hardware
    counts: list[Any] = [asked.devices]
    if asked.devices is None and len(machine.gpus) > 1 and asked.strategy != "none":
        counts.append(len(machine.gpus))
    for offload in (True,) if asked.offload else (False, True):
        for devices in counts:
            some = asked.model_copy(update={"devices": devices, "offload": offload})
            for strategy in _strategies(asked, some, gpu=machine.has_gpu, here=here):
                hardware = some.model_copy(update={"strategy": strategy})
                made = _with(job.model_copy(update={"hardware": hardware}), "trl")
                if asked.strategy or not engine_module("trl").cannot_share(made):
                    yield Way(made, machine, shape, lengths, here)


def _strategies(
    asked: HardwareSpec, some: HardwareSpec, *, gpu: bool, here: Collection[str]
) -> Iterator[StrategyName | None]:
    """Strategies worth a look for so many devices, with or without offload; None is what an empty field means."""
    several = some.processes > 1
    if asked.strategy is not None:
        if some.offload == asked.offload:
            yield asked.strategy
        return
    if not some.offload:
        yield None
    if gpu and "deepspeed" in here and (several or some.offload):
        yield from SHARING
    elif gpu and several and not some.offload:
        yield "fsdp2"


def _with(job: JobSpec, engine: str) -> JobSpec:
    return job.model_copy(update={"engine": ENGINES.named(engine).Spec()})


def _by_unsloth(way: Way, here: Collection[str]) -> Way:
    """The same way with engine unsloth, judged by its memory, where it would train this; else the way as it is."""
    if not way.alone or _against_unsloth(way, here) is not None:
        return way
    return replace(way, job=_with(way.job, "unsloth"))


def _against_unsloth(way: Way, here: Collection[str]) -> str | None:
    """Why Unsloth does not train this, in words; None when it does."""
    job, unsloth = way.job, engine_module("unsloth")
    if not way.machine.has_gpu:
        return "without a GPU, Unsloth has no kernels to bring"
    if job.method.name not in ADAPTERS:
        return "Unsloth is for adapters"
    if job.stage.name not in unsloth.STAGES:
        return f"Unsloth does not run stage {job.stage.name}"
    if way.job.hardware.offload or way.job.hardware.deepspeed_config:
        return "hardware asks for what only DeepSpeed has"
    if findings := list(unsloth.supports(_with(job, "unsloth"), gpu=True)):
        fields = " and ".join(dict.fromkeys(str(one.field) for one in findings))
        return f"Unsloth does not take its {fields}"
    if job.launcher.name != "local":
        return f"Unsloth is started here by launcher local, not {job.launcher.name}"
    if "unsloth" not in here:
        return "Unsloth would be taken if it were installed (factory env install unsloth)"
    return None


def _unsloth(way: Way) -> Choice:
    reason = f"engine unsloth: {way.words}, and it trains adapters on one GPU in less time and memory than TRL alone."
    return Choice(way.job, reason)


def _shared(way: Way, plainest: Way) -> Choice:
    """Several processes, or states kept in the machine's memory."""
    hardware = way.job.hardware
    offload = ", states in the machine's memory" if hardware.offload else ""
    kind, count = "GPU" if way.machine.has_gpu else "CPU process", hardware.processes
    devices = f"{count} {kind}{'' if count == 1 else 'es' if kind.endswith('s') else 's'}"
    how = f"engine trl with {hardware.sharing} on {devices}{offload}: {way.words}"
    needs_it = plainest.verdict != "fits"
    if needs_it:
        how += f", and {byte_size(plainest.needed)} without sharing"
    better = _better(way, fits=True) if needs_it else None
    return Choice(way.job, _sentence(how, better, way.here, hardware.sharing), (better,) if better else ())


def _too_large(smallest: Way, plainest: Way) -> Choice:
    """Nothing fits: the job as the user left it, so that the checks say what to change."""
    job = _with(plainest.job, "trl")
    how = (
        f"engine trl: no way of doing {smallest.size} fits this machine; the smallest takes {smallest.takes}"
    )
    better = _better(smallest, fits=_shared_anyhow(smallest))
    return Choice(job, _sentence(how, better, smallest.here, ""), (better,) if better else ())


def _shared_anyhow(way: Way) -> bool:
    """Whether the work would fit if every GPU took its share, also where engine trl cannot share it out."""
    hardware = way.job.hardware.model_copy(
        update={"devices": len(way.machine.gpus) or None, "strategy": SHARING[-1], "offload": False}
    )
    return replace(way, job=way.job.model_copy(update={"hardware": hardware})).verdict != "too large"


def _better(way: Way, *, fits: bool) -> str | None:
    """The engine that the field takes for reinforcement learning of this size, planned here."""
    if way.job.stage.name not in ONLINE or not way.machine.has_gpu:
        return None
    return OPENRLHF if fits and not way.shape.idle else VERL


def _sentence(how: str, better: str | None, here: Collection[str], sharing: str) -> str:
    if sharing == "fsdp2" and "deepspeed" not in here:
        how += "; DeepSpeed is not installed (factory env install deepspeed)"
    if better is not None:
        name = {OPENRLHF: "OpenRLHF", VERL: "verl"}[better]
        how += f"; {name}, which the field takes for this, is planned here"
    return how + "."


def _count(weights: int) -> str:
    if weights >= 10**9:
        return f"{weights / 10**9:.1f} billion"
    return f"{weights / 10**6:.0f} million" if weights >= 10**6 else f"{weights:,}"
