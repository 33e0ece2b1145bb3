"""Engine trl: Hugging Face TRL, in one process or in several that share the work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.engines.base import EngineSpec

if TYPE_CHECKING:
    from core.job.spec import JobSpec
    from data.errors import Finding

STAGES = ("pretrain", "sft", "reward", "dpo", "kto", "orpo", "ppo", "grpo", "rloo")
"""Stages this engine can run."""
METHODS = ("full", "freeze", "lora", "qlora")
"""Methods it can train by."""
ENVIRONMENT = None
"""It lives in our own environment."""
OUR_SHORTCUTS = True
"""Whether what train.fused and train.padding_free stand for is put into its models and trainers."""


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
    from core.methods.adapter import CHANGING_BASE  # jobs of other methods do without it

    init = getattr(job.method, "init", None)
    if init in CHANGING_BASE and not job.model.adapter and strategy not in WHOLE:
        text = (
            f"method.init {init} changes the base model's weights as it begins, of which each process of {strategy} "
            "would hold a share only; use ddp, deepspeed-2, or method.init default."
        )
        return text, {"hardware.strategy": "ddp"}
    return None


def supports(job: JobSpec, *, gpu: bool) -> Iterator[Finding]:
    """Nothing beyond stages and methods is refused."""
    return iter(())


def plan(job: JobSpec, home: Path) -> list[str]:
    """The command of the training process, as an argument list; the run folder follows as its last word.

    The job itself travels as a file: no word of a user is ever part of a command.
    """
    worker = ["-m", "core.training.worker"]
    if job.hardware.sharing == "none":
        return [sys.executable, *worker]
    count = str(job.hardware.per_node)
    return [sys.executable, "-m", "core.training.ranks", "--standalone", "--nproc-per-node", count, *worker]


def begin(job: JobSpec, home: Path) -> None:
    """Leave out what the job does without, which has to be said before the libraries come."""
    from core.training.lean import leave_out_bitsandbytes, needs_bitsandbytes

    if not needs_bitsandbytes(job, home):
        leave_out_bitsandbytes()


def load(job: JobSpec, home: Path, *, gpu: bool, task: str) -> Any:
    """The model of the job."""
    from core.training.model import load_model

    return load_model(job, home, gpu=gpu, task=task)


def wear(model: Any, job: JobSpec, *, task: str, adapter: Path | None) -> Any:
    """The model with what learns: all of it, some layers, or an adapter."""
    from core.methods import method_module
    from core.methods.adapter import AdapterSpec

    method = job.method
    model = method_module(method.name).apply(model, method, seed=job.train.seed, task=task, adapter=adapter)
    if job.train.fused and isinstance(method, AdapterSpec):
        from core.training import adapter_layer  # peft is imported only where it is used

        adapter_layer.install(model)
    return model
