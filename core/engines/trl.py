"""Engine trl: Hugging Face TRL, in one process or in several that share the work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from core.engines.base import EngineSpec

if TYPE_CHECKING:
    from core.job.spec import JobSpec

STAGES = ("pretrain", "sft", "reward", "dpo", "kto", "orpo", "ppo", "grpo", "rloo")
"""Stages this engine can run."""


STRATEGIES = ("none", "ddp", "fsdp2", "deepspeed-1", "deepspeed-2", "deepspeed-3")
"""Ways in which this engine's processes can share the work."""
WHOLE = ("none", "ddp", "deepspeed-1", "deepspeed-2")
"""Strategies with the whole model in every process."""


class Spec(EngineSpec):
    """Train with Hugging Face TRL: every stage, CPU or GPU."""

    name: Literal["trl"] = "trl"
    """The engine."""


def cannot_share(job: JobSpec) -> tuple[str, dict[str, Any]] | None:
    """Why a job cannot be shared among processes as its hardware asks, in words, and the change that settles it."""
    strategy, stage, method = job.hardware.sharing, job.stage.name, job.method.name
    if strategy == "none":
        return None
    if stage == "ppo":
        text = (
            f"stage ppo trains in one process: its loop does not share out answers, and hardware asks for {strategy} "
            f"with {job.hardware.processes}; take one device, or stage grpo or rloo."
        )
        return text, {"hardware.devices": None, "hardware.nodes": 1, "hardware.strategy": None}
    if method == "qlora" and strategy not in WHOLE:
        text = f"method qlora holds weights in 4 or 8 bits, which {strategy} cannot share out; use ddp, or method lora."
        return text, {"hardware.strategy": "ddp"}
    return None


def plan(job: JobSpec) -> list[str]:
    """The command of the training process, as an argument list; the run folder follows as its last word.

    The job itself travels as a file: no word of a user is ever part of a command.
    """
    worker = ["-m", "core.training.worker"]
    if job.hardware.sharing == "none":
        return [sys.executable, *worker]
    count = str(job.hardware.per_node)
    return [sys.executable, "-m", "core.training.ranks", "--standalone", "--nproc-per-node", count, *worker]
