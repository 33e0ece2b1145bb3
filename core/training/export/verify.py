"""Whether what was read back is what was trained; a difference is a failed export that names the tensor or the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.training.export.reader import Reader, Unreadable
from data.errors import FactoryError, refuse

TOLERANCE = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1}
"""Largest mean difference of logits, in standard deviations of the run's own logits, by the precision of the weights.
fp32 leaves only the order of additions; bf16 has 8 bits, so each weight is off by up to 0.4 %."""


def failed(what: str, **params: Any) -> FactoryError:
    """An export that did not verify. `what` names the tensor or the file, and says how it differs."""
    return refuse("export_not_verified", f"The export was made, but it does not verify: {what}.", **params)


def ask(reader: Reader, question: str, **given: Any) -> dict[str, Any]:
    """What a fresh process read. Raises FactoryError when it could not."""
    try:
        return reader.ask(question, **given)
    except Unreadable as problem:
        raise failed(
            f"{Path(given['folder']).name} cannot be loaded by a fresh process ({problem})"
        ) from problem


def check_tokenizer(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """The tokenizer read back against the run's own. Raises FactoryError naming the part and its file."""
    files = {"chat template": "chat_template.jinja", "rendered chats": "chat_template.jinja"}
    for part, value in expected.items():
        if found[part] != value:
            file = files.get(part, "tokenizer_config.json" if "token" == part[-5:] else "tokenizer.json")
            raise failed(
                f"{file} gives another {part} ({_short(found[part])} instead of {_short(value)})", file=file
            )


def check_generation(found: Mapping[str, Any] | None, ends: Iterable[int]) -> None:
    """The generation config read back: every token that ends an answer must stand in it."""
    if found is None:
        raise failed("generation_config.json is missing", file="generation_config.json")
    told = found["eos_token_id"]
    told = told if isinstance(told, list) else [told]
    if missing := [token for token in ends if token not in told]:
        text = f"generation_config.json does not end answers at token {missing[0]} (eos_token_id is {told})"
        raise failed(text, file="generation_config.json")


def check_keys(wrong: Mapping[str, list[str]]) -> None:
    """What from_pretrained found missing, left over or of another size."""
    for kind, names in wrong.items():
        raise failed(f"loading it reports {kind.replace('_', ' ')}: {names[0]}", tensor=names[0])


def check_logits(expected: list[Any], found: list[Any], tolerance: float, reader: str) -> str:
    """Logits against the run's own; a sentence for the record. Raises FactoryError when they differ."""
    spread = max(float(np.std(np.concatenate([one.ravel() for one in expected]))), 1e-6)
    if any(not np.isfinite(one).all() for one in found):
        raise failed(f"logits through {reader} are not finite")
    if [one.shape for one in expected] != [one.shape for one in found]:
        raise failed(
            f"logits through {reader} have another shape ({found[0].shape}, not {expected[0].shape})"
        )
    difference = (
        max(float(np.abs(ours - theirs).mean()) for ours, theirs in zip(expected, found, strict=True))
        / spread
    )
    if difference > tolerance:
        raise failed(
            f"logits through {reader} differ by {difference:.3g} standard deviations, and {tolerance:g} are allowed",
            difference=difference,
        )
    return f"logits through {reader} (difference {difference:.1e} standard deviations, {tolerance:g} allowed)"


def as_written(model: Any) -> dict[str, Any]:
    """The model's tensors by the names, and in the pieces, that its family has in files.

    transformers 5.17 holds the experts of a layer as one tensor, and calls GPT-NeoX's head as other heads; what it
    writes has the names and pieces that every other program knows.
    """
    from transformers.core_model_loading import revert_weight_conversion

    return dict(revert_weight_conversion(model, dict(model.state_dict())))


def check_tensors(folder: Path, expected: Mapping[str, Any]) -> str:
    """Every tensor in the safetensors files of a folder, bit by bit. Raises FactoryError naming the first that differs.

    Names with one tensor behind them (tied weights) may be left out of the files, but not all of them.
    """
    import torch
    from safetensors import safe_open

    left = dict(expected)
    written: set[int] = set()
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as content:
            for name in content.keys():
                tensor = content.get_tensor(name)
                want = left.pop(name, None)
                if want is None:
                    raise failed(f"{file.name} has a tensor {name} that the model has not", tensor=name)
                if tensor.dtype != want.dtype or tensor.shape != want.shape:
                    text = f"{name} in {file.name} is {tuple(tensor.shape)} {tensor.dtype}, not "
                    raise failed(f"{text}{tuple(want.shape)} {want.dtype}", tensor=name)
                if not torch.equal(tensor, want):
                    raise failed(f"tensor {name} in {file.name} is not what was trained", tensor=name)
                written.add(want.data_ptr())
    for name, tensor in left.items():
        if tensor.data_ptr() not in written:
            raise failed(f"tensor {name} is missing", tensor=name)
    return f"{len(expected) - len(left)} tensors equal to the last bit"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
