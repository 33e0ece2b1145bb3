"""Which ways of training a model fit a machine: method by strategy for a stage, and the cheapest change that fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.job.forecast import changed_job, changes, judge, without_what_stays
from core.job.hardware import StrategyName
from core.job.load import check_values
from core.job.machine import Gpu, Machine
from core.job.memory import ONLINE, Memory, Place, Strategy, heaviest_batch, memory
from core.job.presets import resolve
from core.job.shape import ModelShape
from core.job.spec import JobSpec
from data.errors import refuse

STRATEGIES: tuple[tuple[StrategyName, bool], ...] = (
    ("none", False),
    ("ddp", False),
    ("deepspeed-1", False),
    ("deepspeed-2", False),
    ("deepspeed-3", False),
    ("fsdp2", False),
    ("deepspeed-3", True),
)
_GPUS = re.compile(r"(?:(\d{1,4})\s*[xX*]\s*)?(\d{1,5}(?:\.\d+)?)\s*(?:GB|GiB|G)?")


@dataclass(frozen=True)
class Fit:
    """One way of training and whether it fits a device."""

    method: str
    strategy: str
    needed: Memory
    verdict: str
    change: dict[str, Any] | None
    """The cheapest change that fits, where this does not."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; bytes."""
        return {
            "method": self.method,
            "strategy": self.strategy,
            "memory": {name: round(size) for name, size in self.needed.parts.items()},
            "memory_total": round(self.needed.total),
            "host": round(self.needed.host),
            "verdict": self.verdict,
            "change": self.change,
        }


def read_gpus(text: str) -> tuple[int, int]:
    """How many GPUs and the bytes of each: `8x80` is eight of 80 GiB, `24` one of 24. Raises FactoryError."""
    found = _GPUS.fullmatch(text.strip())
    count, size = (int(found.group(1) or 1), float(found.group(2))) if found else (0, 0.0)
    if not (1 <= count and size > 0):
        raise refuse(
            "bad_gpus", f"--gpus {text!r} must be COUNTxGIB, such as 8x80 or 24.", field="gpus", value=text
        )
    return count, round(size * 2**30)


def machine_with(count: int, size: int) -> Machine:
    """A machine with so many GPUs of so many bytes that have bf16."""
    gpus = tuple(Gpu(number, "GPU", size, size, 8.0, "") for number in range(count))
    return Machine("", "", 1, 0, 0, gpus=gpus)


def ways(
    shape: ModelShape, stage: str, count: int, size: int, length: int | None = None, batch: int | None = None
) -> Iterator[Fit]:
    """Every method and strategy for a stage on `count` GPUs of `size` bytes each; rows as long as they may be.

    Raises FactoryError for a stage that does not exist.
    """
    for method in ("full", "lora", "qlora"):
        job = _job(shape, stage, method, length, batch)
        for name, offload in STRATEGIES:
            if (name == "none") == (count == 1) and not (
                method == "qlora" and name in ("deepspeed-3", "fsdp2")
            ):
                yield _fit(
                    job, shape, Place(gpu=True, half=True, strategy=Strategy(name, count, offload)), size
                )


def _fit(job: JobSpec, shape: ModelShape, place: Place, size: int) -> Fit:
    needed = memory(job, shape, heaviest_batch(job), place)
    verdict = judge(needed.total, size)
    change = None
    if verdict == "too large":
        own = (one for one in changes(job, place) if "method" not in one)
        fitting = (
            one
            for one in own
            if judge(memory(made := changed_job(job, one), shape, heaviest_batch(made), place).total, size)
            == "fits"
        )
        found = next(fitting, None)
        change = without_what_stays(job, found) if found else None
    strategy = place.strategy
    return Fit(
        job.method.name, strategy.name + ("+offload" if strategy.offload else ""), needed, verdict, change
    )


def _job(shape: ModelShape, stage: str, method: str, length: int | None, batch: int | None) -> JobSpec:
    wanted: Any = stage
    if length is not None:
        wanted = {"name": stage, "max_completion_length" if stage in ONLINE else "max_length": length}
    values = {"model": "org/model", "data": "rows.jsonl", "stage": wanted, "method": method}
    if batch is not None:
        values["train"] = {"batch_size": batch}
    return resolve(check_values(values, "fit"), parameters=shape.parameters, gpu=True).job
