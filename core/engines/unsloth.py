"""Engine unsloth: TRL's trainers as Unsloth rewrites them, in an environment of their own, on one device.

The heavy half is core/training/unsloth_engine.py: its library is imported before all others, in the training process
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.engines.base import EngineSpec
from data.errors import Finding

if TYPE_CHECKING:
    from core.job.spec import JobSpec

STAGES = ("pretrain", "sft", "dpo", "grpo")
"""Stages this engine can run."""
METHODS = ("full", "lora", "qlora")
"""Methods it can train by."""
STRATEGIES = ("none",)
"""It trains in one process here; several have not been tried."""
ENVIRONMENT = "unsloth"
"""The environment it lives in: `factory env install unsloth`."""
OUR_SHORTCUTS = False
"""It brings kernels and losses of its own, which ours would stand in the way of."""
SAVED = ("lm_head", "embed_tokens")
"""Modules that Unsloth 2026.10.9 trains in full beside an adapter, with normalization layers (llama.py)."""


class Spec(EngineSpec):
    """Train with Unsloth: LoRA and QLoRA on one GPU in less time and memory; needs `factory env install unsloth`."""

    name: Literal["unsloth"] = "unsloth"
    """The engine."""
    checkpointing: Literal["unsloth", "plain"] = "unsloth"
    """How train.gradient_checkpointing is done: Unsloth's way keeps activations in the machine's memory, the plain way
    computes them again. The same on a CPU."""


@dataclass(frozen=True)
class Limit:
    """Something this engine does not take."""

    field: str
    hit: Callable[[JobSpec, bool], bool]
    """Whether a job, on a GPU or not, asks for it."""
    why: str
    fix: object = "trl"
    """The value that it takes; `trl` stands for the engine that takes the job as it is."""


def _of(field: str, job: JobSpec) -> Any:
    value: Any = job
    for part in field.split("."):
        value = getattr(value, part, None)
    return value


def _saved(job: JobSpec, gpu: bool) -> bool:
    names = getattr(job.method, "modules_to_save", [])
    return any(name not in SAVED and "norm" not in name for name in names)


def _eight_bits(job: JobSpec, gpu: bool) -> bool:
    name = job.train.optimizer
    return not gpu and any(mark in name for mark in ("8bit", "paged", "bnb"))


def _is(field: str, *values: object, cpu_only: bool = False) -> Callable[[JobSpec, bool], bool]:
    return lambda job, gpu: _of(field, job) in values and not (cpu_only and gpu)


LIMITS: tuple[Limit, ...] = (
    Limit(
        "model.adapter", lambda job, gpu: job.model.adapter is not None, "it begins with adapters of its own"
    ),
    Limit(
        "model.attention",
        _is("model.attention", "sdpa", "eager", "flash_attention_2"),
        "it chooses the attention itself",
        "auto",
    ),
    Limit("stage.loss", _is("stage.loss", "dft"), "its loss is the plain cross entropy"),
    Limit(
        "stage.loss",
        lambda job, gpu: job.stage.name == "dpo" and _of("stage.loss", job)[0] in ("simpo", "cpo"),
        "this loss has a trainer that it does not rewrite",
    ),
    Limit("stage.vllm", _is("stage.vllm", "colocate", "server"), "its environment has no vLLM", "off"),
    Limit("method.dora", _is("method.dora", True), "its kernels know plain LoRA only", False),
    Limit(
        "method.init",
        _is("method.init", "orthogonal", "pissa", "olora"),
        "its adapters start as peft's do",
        "default",
    ),
    Limit(
        "method.modules_to_save",
        _saved,
        "it trains lm_head, embed_tokens and normalization layers in full, and no others",
    ),
    Limit("method.double_quant", _is("method.double_quant", False), "it always quantises twice", True),
    Limit("method.bits", _is("method.bits", "int8", cpu_only=True), "it has 8 bits on a GPU only", "nf4"),
    Limit(
        "train.optimizer",
        _eight_bits,
        "on a CPU it would take AdamW instead without asking",
        "adamw_torch_fused",
    ),
    Limit("train.fused", _is("train.fused", False), "its kernels are what it is for", True),
    Limit(
        "hardware.precision",
        _is("hardware.precision", "bf16", cpu_only=True),
        "on a CPU it may take fp32 instead without asking",
        "auto",
    ),
)
"""Everything it does not take, found in Unsloth 2026.10.9's code: it would refuse, or silently do something else."""


def supports(job: JobSpec, *, gpu: bool) -> Iterator[Finding]:
    """A finding for everything the job asks of it that it cannot do, with the engine or the value that can."""
    for limit in LIMITS:
        if limit.hit(job, gpu):
            value = _of(limit.field, job)
            fix = {"engine": "trl"} if limit.fix == "trl" else {limit.field: limit.fix}
            other = (
                "engine trl does" if limit.fix == "trl" else f"set {_word(limit.fix)}, or choose engine trl"
            )
            yield Finding(
                "engine_cannot",
                f"engine unsloth does not take {limit.field} {_word(value)}: {limit.why}; {other}.",
                "error",
                limit.field,
                value,
                fix=fix,
            )


def _word(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def plan(job: JobSpec, home: Path) -> list[str]:
    """The command of the training process, by its own environment's Python; the run folder follows as its last word."""
    from core.job.environments import environment

    return [str(environment(ENVIRONMENT).python(home)), "-m", "core.training.worker"]


def begin(job: JobSpec, home: Path) -> None:
    """Import Unsloth, before everything that it rewrites. Raises FactoryError where it is not installed."""
    from core.training import unsloth_engine

    unsloth_engine.begin(job, home)


def load(job: JobSpec, home: Path, *, gpu: bool, task: str) -> Any:
    """The model of the job, by FastLanguageModel."""
    from core.training import unsloth_engine

    return unsloth_engine.load(job, home, gpu=gpu)


def wear(model: Any, job: JobSpec, *, task: str, adapter: Path | None) -> Any:
    """The model with what learns: all of it, or Unsloth's adapter."""
    from core.training import unsloth_engine

    return unsloth_engine.wear(model, job)
