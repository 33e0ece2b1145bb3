"""Where and by what it trains (precision, DeepSpeed, FSDP, Unsloth), from a training YAML of LLaMA-Factory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.engines import engine_module
from core.job.foreign.lines import Imported
from core.job.foreign.values import meant_from

Values = Mapping[str, Any]
COUNT = "set hardware.devices to how many GPUs, which LLaMA-Factory takes from the environment"


def read_precision(values: Values, made: Imported) -> None:
    for key in ("bf16", "pure_bf16", "fp16"):
        if key not in values:
            continue
        if not values[key]:
            made.tell("not needed", key, values[key], None, "precision auto does without it where it must")
        elif key == "fp16":
            made.put("hardware.precision", "fp16")
            made.tell("mapped", key, True, "hardware.precision")
        else:
            made.put("hardware.precision", "auto")
            words = "auto is bf16 where the GPU has it, with fp32 weights where these are trained in full"
            made.tell("changed", key, True, "hardware.precision", words)


def read_strategy(values: Values, made: Imported, folder: Path) -> None:
    """DeepSpeed's JSON and FSDP's words: what processes share out."""
    if (config := values.get("deepspeed")) is not None:
        _deepspeed(config, made, folder)
    words = str(values.get("fsdp") or "").split()
    if words and "deepspeed" in values:
        made.tell("not needed", "fsdp", values["fsdp"], None, "deepspeed goes before it")
    elif words:
        _fsdp(words, values["fsdp"], made)
    elif "fsdp" in values:
        made.tell("not needed", "fsdp", values["fsdp"], None, "nothing is shared out")
    if "fsdp_config" in values:
        text = "FSDP's settings are made from the job and kept in the run"
        made.tell("not needed", "fsdp_config", values["fsdp_config"], None, text)


def _deepspeed(config: Any, made: Imported, folder: Path) -> None:
    path = None if isinstance(config, dict) else meant_from(str(config), folder)
    told = config if isinstance(config, dict) else _json(str(path))
    zero = told.get("zero_optimization") if told else None
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    if told is None:
        text = "there is no such JSON to read its stage from; set hardware.strategy to deepspeed-1, -2 or -3"
        made.tell("not mapped", "deepspeed", config, None, text)
        return
    if stage not in (1, 2, 3):
        text = f"it shares nothing out (stage {stage}): several processes train so by themselves; {COUNT}"
        made.tell("not needed", "deepspeed", config, None, text)
        return
    made.put("hardware.strategy", f"deepspeed-{stage}")
    if _device(zero, "offload_optimizer") == "cpu" or _device(zero, "offload_param") == "cpu":
        made.put("hardware.offload", True)
    text = f"strategy deepspeed-{stage}; {COUNT}"
    if path is None:
        text += "; more than stage and offload belongs into a JSON of its own: hardware.deepspeed_config"
        made.tell("changed", "deepspeed", config, "hardware.strategy", text)
        return
    made.put("hardware.deepspeed_config", path)
    made.tell("changed", "deepspeed", config, "hardware.deepspeed_config", text)


def _device(zero: Any, part: str) -> Any:
    inner = zero.get(part)
    return inner.get("device") if isinstance(inner, dict) else None


def _json(path: str) -> dict[str, Any] | None:
    """The settings in a file; None when it cannot be read as such."""
    try:
        told = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _fsdp(words: list[str], value: Any, made: Imported) -> None:
    if "no_shard" in words:
        made.tell("changed", "fsdp", value, "hardware.strategy", f"that is strategy ddp; {COUNT}")
        made.put("hardware.strategy", "ddp")
        return
    made.put("hardware.strategy", "fsdp2")
    text = f"strategy fsdp2, which shares weights too; {COUNT}"
    if "offload" in words:
        text += "; offload is DeepSpeed's here: strategy deepspeed-3 with hardware.offload"
    made.tell("changed", "fsdp", value, "hardware.strategy", text)


def read_engine(values: Values, made: Imported, folder: Path) -> None:
    """Unsloth, where it trains such a job here; its way of checkpointing is the engine's own default."""
    asked, moved = values.get("use_unsloth"), values.get("use_unsloth_gc")
    why = _without_unsloth(made.job)
    if asked and why is None:
        made.put("engine.name", "unsloth")
        made.tell("mapped", "use_unsloth", asked, "engine.name")
    elif asked:
        made.tell("not mapped", "use_unsloth", asked, None, f"{why}; engine trl trains it")
    elif asked is not None:
        made.tell("not needed", "use_unsloth", asked, None, "engine trl is the default")
    if moved and asked and why is None:
        made.put("engine.checkpointing", "unsloth")
        made.tell("mapped", "use_unsloth_gc", moved, "engine.checkpointing")
    elif moved:
        text = "activations are moved to the machine's memory by engine unsloth only"
        made.tell("not mapped", "use_unsloth_gc", moved, None, text)
    elif moved is not None:
        made.tell("not needed", "use_unsloth_gc", moved, None, "engine trl does without it")


def _without_unsloth(job: Mapping[str, Any]) -> str | None:
    """Why engine unsloth would not train a job, in words; None when it would."""
    unsloth = engine_module("unsloth")
    stage, method = job["stage"]["name"], job["method"]["name"]
    if stage not in unsloth.STAGES:
        return f"engine unsloth has no stage {stage}"
    if method not in unsloth.METHODS:
        return f"engine unsloth has no method {method}"
    if "strategy" in job.get("hardware", {}):
        return "engine unsloth trains in one process here"
    return None
