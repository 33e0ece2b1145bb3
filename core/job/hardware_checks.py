"""What a job's hardware asks for and this machine, the engine, the stage or the method cannot give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.engines import ENGINES, engine_module
from core.job.case import Case, find
from core.job.deepspeed import CPU_ADAM, contradictions, own_settings
from core.job.forecast import half_of
from core.job.machine import installed
from data.errors import FactoryError, Finding

STRATEGY = "hardware.strategy"
GALORE = ("galore", "lomo", "adalomo", "apollo")
"""Optimizers that reach into single layers' gradients, which shared out weights and buckets do not have whole."""


def hardware_findings(case: Case) -> Iterator[Finding]:
    """All of them."""
    yield from _devices_and_precision(case)
    yield from _processes(case)
    yield from _strategy(case)
    yield from _engine(case)
    yield from _deepspeed(case)


def _devices_and_precision(case: Case) -> Iterator[Finding]:
    wanted, gpus = case.job.hardware, case.machine.gpus
    if case.machine.gpu_problem:
        yield find(
            "gpu_unusable",
            "warning",
            None,
            None,
            f"This machine's GPUs cannot be used ({case.machine.gpu_problem}); training will run on the CPU.",
        )
    known = [gpu.index for gpu in gpus] or [0]
    named = wanted.devices if isinstance(wanted.devices, list) else []
    absent = [number for number in named if number not in known]
    if absent:
        here = f"GPUs {', '.join(map(str, known))}" if gpus else "no GPU, and the CPU is device 0"
        yield find(
            "device_missing",
            "error",
            "hardware.devices",
            wanted.devices,
            f"hardware.devices names {', '.join(map(str, absent))}, but this machine has {here}.",
            hardware__devices=None,
        )
    if wanted.precision == "fp16" and not gpus:
        yield find(
            "fp16_on_cpu",
            "error",
            "hardware.precision",
            "fp16",
            "hardware.precision fp16 needs a GPU, and this machine has none; use auto (fp32 here).",
            hardware__precision="auto",
        )
    if wanted.precision == "bf16":
        yield from _bf16(case)
    if case.job.model.attention == "flash_attention_2" and (not gpus or installed("flash-attn") is None):
        reason = (
            "a GPU, and this machine has none"
            if not gpus
            else "the package flash-attn, which is not installed"
        )
        yield find(
            "flash_attention_missing",
            "error",
            "model.attention",
            "flash_attention_2",
            f"model.attention flash_attention_2 needs {reason}; use auto.",
            model__attention="auto",
        )


def _bf16(case: Case) -> Iterator[Finding]:
    old = [gpu for gpu in case.machine.gpus if gpu.compute < 8.0]
    if not case.machine.gpus:
        text = "hardware.precision bf16 on a CPU takes about three times as long as fp32; use auto."
        yield find("bf16_on_cpu", "warning", "hardware.precision", "bf16", text, hardware__precision="auto")
    elif old:
        has = f"{old[0].name} has {old[0].compute}"
        text = f"hardware.precision bf16 needs compute capability 8.0, and {has}; use auto."
        yield find(
            "bf16_unsupported", "error", "hardware.precision", "bf16", text, hardware__precision="auto"
        )


def _processes(case: Case) -> Iterator[Finding]:
    """More devices than there are; on a CPU more processes than cores."""
    asked, gpus, cores = case.job.hardware.devices, case.machine.gpus, case.machine.cores
    if not isinstance(asked, int):
        return
    if gpus and asked > len(gpus):
        has = f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
        text = f"hardware.devices {asked} asks for more than the {has} of this machine; ask for at most {len(gpus)}."
        yield find("too_few_devices", "error", "hardware.devices", asked, text, hardware__devices=len(gpus))
    elif not gpus and asked > cores:
        text = (
            f"hardware.devices {asked} asks for as many processes, and this machine has no GPU and {cores} CPU "
            f"core{'s' if cores > 1 else ''}; ask for at most {cores}."
        )
        yield find("too_few_devices", "error", "hardware.devices", asked, text, hardware__devices=cores)


def _strategy(case: Case) -> Iterator[Finding]:
    """Strategies that say nothing for so many processes, or that cannot be on this machine."""
    if (nodes := case.job.hardware.nodes) > 1 and case.job.launcher.name == "local":
        text = f"hardware.nodes {nodes} asks for several machines, and launcher local has this one; use launcher "
        text += "torchrun or slurm."
        yield find("nodes_without_launcher", "error", "hardware.nodes", nodes, text, hardware__nodes=1)
    hardware, gpu = case.job.hardware, case.machine.has_gpu
    name, count = hardware.sharing, hardware.processes
    if name == "none" and count > 1:
        text = f"hardware.strategy none trains in one process, and hardware asks for {count}; use ddp."
        yield find("strategy_none_with_several", "error", STRATEGY, name, text, hardware__strategy="ddp")
    if name in ("ddp", "fsdp2") and count == 1:
        text = (
            f"hardware.strategy {name} shares work among several processes, and hardware asks for one; set "
        )
        text += "hardware.devices to how many, or take the strategy out."
        yield find("strategy_for_one", "error", STRATEGY, name, text, hardware__strategy=None)
    if name == "fsdp2" and not gpu:
        text = (
            "hardware.strategy fsdp2 needs GPUs: on a CPU the trainer would silently fall back to ddp; use ddp or "
            "deepspeed-3."
        )
        yield find("fsdp2_on_cpu", "error", STRATEGY, name, text, hardware__strategy="ddp")
    if hardware.offload and not hardware.zero:
        text = (
            f"hardware.offload is DeepSpeed's, and hardware.strategy is {name}; use deepspeed-2 or deepspeed-3, or "
            "set offload to false."
        )
        yield find(
            "offload_without_deepspeed", "error", "hardware.offload", True, text, hardware__offload=False
        )
    elif hardware.offload and not gpu:
        text = (
            "hardware.offload moves states from GPUs to the machine's memory, and this machine has no GPU; "
        )
        text += "set it to false."
        yield find("offload_on_cpu", "error", "hardware.offload", True, text, hardware__offload=False)


def _engine(case: Case) -> Iterator[Finding]:
    """What the engine, the stage or the method cannot do in several processes."""
    job = case.job
    name, engine = job.hardware.sharing, engine_module(job.engine.name)
    strategies = getattr(engine, "STRATEGIES", ("none",))
    if name not in strategies:
        able = [one for one in ENGINES.names if name in getattr(engine_module(one), "STRATEGIES", ())]
        text = f"engine {job.engine.name} does not train with hardware.strategy {name}, only with "
        text += f"{', '.join(strategies)}; use engine {' or '.join(able)}, or another strategy."
        yield find("engine_without_strategy", "error", STRATEGY, name, text)
        return
    refusal = getattr(engine, "cannot_share", None)
    if refusal is not None and (why := refusal(job)) is not None:
        text, change = why
        fix = {key.replace(".", "__"): value for key, value in change.items()}
        yield find("strategy_not_here", "error", STRATEGY, name, text, **fix)


def _deepspeed(case: Case) -> Iterator[Finding]:
    hardware, own = case.job.hardware, case.job.hardware.deepspeed_config
    if hardware.zero and installed("deepspeed") is None:
        text = f"hardware.strategy {hardware.sharing} needs DeepSpeed, which is not installed; "
        text += "run: factory env install deepspeed"
        yield find("deepspeed_missing", "error", STRATEGY, hardware.sharing, text)
    if hardware.zero and (optimizer := case.job.train.optimizer).startswith(GALORE):
        text = f"train.optimizer {optimizer} works on single layers' gradients, which DeepSpeed does not keep; use "
        text += "adamw_torch_fused."
        yield find(
            "optimizer_not_for_deepspeed",
            "error",
            "train.optimizer",
            optimizer,
            text,
            train__optimizer="adamw_torch_fused",
        )
    if hardware.offload and hardware.zero and (optimizer := case.job.train.optimizer) not in CPU_ADAM:
        text = f"hardware.offload works on {' or '.join(CPU_ADAM)}, not on train.optimizer {optimizer}; use "
        text += "adamw_torch_fused, or set hardware.offload to false."
        yield find(
            "optimizer_not_offloaded",
            "error",
            "train.optimizer",
            optimizer,
            text,
            train__optimizer="adamw_torch_fused",
        )
    if own is None:
        return
    if not hardware.zero:
        text = (
            f"hardware.deepspeed_config is for DeepSpeed, and hardware.strategy is {hardware.sharing}; use "
        )
        text += "deepspeed-1, -2 or -3, or leave it empty."
        yield find(
            "deepspeed_config_unused",
            "error",
            "hardware.deepspeed_config",
            own,
            text,
            hardware__deepspeed_config=None,
        )
        return
    yield from _own_config(case)


def _own_config(case: Case) -> Iterator[Finding]:
    """Where the user's own JSON says other than the job."""
    try:
        own: dict[str, Any] = own_settings(case.job)
    except FactoryError as error:
        yield from error.findings
        return
    half = half_of(case.job, case.machine)
    for key, told, field, wanted in contradictions(case.resolved, own, half=half):
        text = (
            f"{case.job.hardware.deepspeed_config} says {key} {_word(told)}, and by {field} it is {_word(wanted)}; let "
            'them agree, or write "auto" in the file.'
        )
        yield find("deepspeed_config_contradicts", "error", "hardware.deepspeed_config", told, text)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
