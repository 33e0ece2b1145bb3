"""What moves and how it is held (full, freeze, lora, qlora), from a training YAML of LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.job.foreign.lines import Imported
from core.job.foreign.llama_keys import ADAPTER, QUANTISED
from core.job.foreign.values import names_in

Values = Mapping[str, Any]


def read_method(values: Values, made: Imported, folder: Path) -> None:
    theirs, bits = values.get("finetuning_type", "lora"), values.get("quantization_bit")
    if theirs not in ("lora", "full", "freeze"):
        words = f"{theirs} is no method here; lora is taken"
        made.tell("not mapped", "finetuning_type", theirs, None, words)
        theirs = "lora"
    elif "finetuning_type" in values:
        made.tell("mapped", "finetuning_type", theirs, "method.name")
    made.put("method.name", theirs)
    if theirs == "lora":
        _adapter(values, made, bits)
    if theirs == "freeze":
        _freeze(values, made)
    for key in (*ADAPTER, "lora_target", "additional_target", "pissa_init", "quantization_bit", *QUANTISED):
        if key in values and not any(line.key == key for line in made.lines):
            made.tell("not needed", key, values[key], None, f"the method {theirs} has no use for it")


def _adapter(values: Values, made: Imported, bits: Any) -> None:
    rank = int(values.get("lora_rank", 8))
    made.put("method.rank", rank)
    made.put(
        "method.alpha", int(values.get("lora_alpha") or 2 * rank)
    )  # their defaults: 8, and twice the rank
    for key, path in ADAPTER.items():
        if key in values and values[key] is not None:
            made.put(path, values[key])
            made.tell("mapped", key, values[key], path)
    if (target := values.get("lora_target")) is not None:
        names = names_in(target)
        made.put("method.target", "all-linear" if names == ["all"] else names)
        words = "called all-linear here" if names == ["all"] else ""
        made.tell("changed" if words else "mapped", "lora_target", target, "method.target", words)
    if extra := values.get("additional_target"):
        made.put("method.modules_to_save", names_in(extra))
        made.tell("mapped", "additional_target", extra, "method.modules_to_save")
    if values.get("pissa_init"):
        made.put("method.init", "pissa")
        made.tell(
            "changed", "pissa_init", True, "method.init", "that is init: pissa, by an exact decomposition"
        )
    if bits is not None:
        _quantised(values, made, bits)


def _quantised(values: Values, made: Imported, bits: Any) -> None:
    kind = {4: "nf4", 8: "int8"}.get(bits)
    how = values.get("quantization_method", "bitsandbytes")
    if kind is None or how not in ("bitsandbytes", "bnb"):
        words = "bases are held in 4 bits (nf4) or 8 bits (int8) by bitsandbytes here; it is loaded as it is"
        made.tell("not mapped", "quantization_bit", bits, None, words)
        return
    made.put("method.name", "qlora")
    made.put("method.bits", kind)
    made.tell("changed", "quantization_bit", bits, "method.bits", f"that is method: qlora with {kind}")
    if "quantization_method" in values:
        made.tell("mapped", "quantization_method", how, "method.name")
    if (told := values.get("quantization_type")) is not None:
        words = "" if told == "nf4" else "fp4 is not offered; nf4 holds weights better at the same size"
        made.tell("changed" if words else "mapped", "quantization_type", told, "method.bits", words)
    if (double := values.get("double_quantization")) is not None and kind == "nf4":
        made.put("method.double_quant", bool(double))
        made.tell("mapped", "double_quantization", double, "method.double_quant")


def _freeze(values: Values, made: Imported) -> None:
    layers = int(values.get("freeze_trainable_layers", 2))
    if layers < 0:
        words = "the last layers move here, never the first; 2 are taken"
        made.tell("not mapped", "freeze_trainable_layers", layers, None, words)
        layers = 2
    elif "freeze_trainable_layers" in values:
        made.tell("mapped", "freeze_trainable_layers", layers, "method.layers")
    made.put("method.layers", layers)
    if extra := values.get("freeze_extra_modules"):
        made.put("method.modules", names_in(extra))
        made.tell("mapped", "freeze_extra_modules", extra, "method.modules")
    if (modules := values.get("freeze_trainable_modules")) is not None:
        whole = names_in(modules) == ["all"]
        words = "all modules of the layers move, as there" if whole else "whole layers move here"
        made.tell("not needed" if whole else "not mapped", "freeze_trainable_modules", modules, None, words)
