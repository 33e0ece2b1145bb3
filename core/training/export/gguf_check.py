"""A GGUF file read back: its header and tensors by the package gguf, its answers by transformers and llama.cpp."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from core.training.export.reader import TEXTS
from core.training.export.source import Source
from core.training.export.verify import ask, check_logits, failed
from core.training.export.work import Work

TOLERANCE = {
    "f16": 0.02,
    "q8_0": 0.1,
    "q6_k": 0.2,
    "q5_k_m": 0.3,
    "q5_k_s": 0.3,
    "q4_k_m": 0.5,
    "q4_k_s": 0.5,
}
"""Largest mean difference of logits from the run's own, in standard deviations of these. Seen on SmolLM2-135M: f16
0.001, q8_0 0.04, q4_k_m 0.14, q2_k 0.38."""
COARSE = 1.0
"""The same for other quants."""


def check_header(path: Path, source: Source, shape: Mapping[str, int | float]) -> str:
    """The model's shape, tokens, end marks and chat template in the file against the run's own.

    Raises FactoryError naming the first field that differs.
    """
    reader = gguf.GGUFReader(path)
    tokenizer = source.tokenizer
    _check_shape(reader, path.name, shape)

    def told(name: str) -> Any:
        found = reader.get_field(f"tokenizer.{name}")
        return None if found is None else found.contents()

    expected: dict[str, Any] = {
        "ggml.eos_token_id": tokenizer.eos_token_id,
        "ggml.bos_token_id": tokenizer.bos_token_id,
        "chat_template": tokenizer.chat_template or None,
    }
    if others := [number for number in source.ends() if number != tokenizer.eos_token_id]:
        expected["ggml.eot_token_id"] = others[0]
    for name, value in expected.items():
        if told(name) != value:
            raise failed(
                f"tokenizer.{name} in {path.name} is {told(name)!r}, not {value!r}"[:300], field=name
            )
    tokens = told("ggml.tokens") or []
    wrong = [
        (token, number)
        for token, number in tokenizer.get_vocab().items()
        if number >= len(tokens) or tokens[number] != token
    ]
    if wrong:
        raise failed(
            f"token {wrong[0][1]} in {path.name} is not {wrong[0][0]!r}", field="tokenizer.ggml.tokens"
        )
    return f"{len(tokens):,} tokens, end marks and chat template in the header"


def _check_shape(reader: Any, file: str, shape: Mapping[str, int | float]) -> None:
    architecture = reader.get_field("general.architecture").contents()
    for name, value in shape.items():
        field = reader.get_field(f"{architecture}.{name}")
        found = None if field is None else field.contents()
        if found is None or abs(found - value) > 1e-6 * abs(value):  # fp32 in the file
            raise failed(f"{architecture}.{name} in {file} is {found!r}, not {value!r}", field=name)


def check_tensors(path: Path, expected: list[tuple[str, np.ndarray[Any, Any]]]) -> str:
    """Every tensor within what its precision can hold. Raises FactoryError naming the first that is not."""
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name, values in expected:
        tensor = found.pop(name, None)
        if tensor is None:
            raise failed(f"tensor {name} is missing in {path.name}", tensor=name)
        stored = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(values.shape)
        if (np.abs(stored - values) > _room(values, tensor.tensor_type)).any():
            raise failed(f"tensor {name} in {path.name} is not what was trained", tensor=name)
    if found:
        name = next(iter(found))
        raise failed(f"{path.name} has a tensor {name} that the model has not", tensor=name)
    return f"{len(expected)} tensors within the precision of the file"


def _room(values: np.ndarray[Any, Any], kind: Any) -> Any:
    """How far a stored value may be off: half a step of its block's scale, or of its own last bit."""
    if kind == gguf.GGMLQuantizationType.Q8_0:
        blocks = np.abs(values).reshape(*values.shape[:-1], -1, 32).max(axis=-1, keepdims=True)
        # A scale is largest / 127, itself rounded to 11 bits, and the value to the nearest of its multiples.
        return np.broadcast_to(blocks * (0.5 / 127 + 2**-11) + 1e-7, (*blocks.shape[:-1], 32)).reshape(
            values.shape
        )
    if kind == gguf.GGMLQuantizationType.F16:
        return np.abs(values) * 2**-11 + 2**-25
    return 0.0


def read_back(
    work: Work, path: Path, quant: str, reference: list[Any], settings: dict[str, Any]
) -> list[str]:
    """The file through transformers' GGUF reader in a fresh process, and through llama.cpp where it is installed."""
    source = work.source
    allowed = TOLERANCE.get(quant, COARSE)
    sequences = source.sequences()
    work.phase("loading it with transformers' GGUF reader", 0.7)
    asked = {"folder": str(path.parent), "file": path.name, "sequences": sequences, "settings": settings}
    found = ask(work.reader, "gguf", **asked)
    checked = [check_logits(reference, found["logits"], allowed, "transformers' GGUF reader")]
    if found["told"]:
        work.notes.append(
            f"transformers' GGUF reader was told {' and '.join(found['told'])}, which it overlooks"
        )
    if importlib.util.find_spec("llama_cpp") is not None:
        from core.training.export.llama import logits_and_ids

        work.phase("loading it with llama.cpp", 0.88)
        answers, ids = logits_and_ids(path, sequences, list(TEXTS))
        ours = [source.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        for text, wanted, got in zip(TEXTS, ours, ids, strict=True):
            if wanted != got:
                raise failed(f"llama.cpp splits {text!r} into other tokens than the run's tokenizer")
        checked.append(check_logits(reference, answers, allowed, "llama.cpp"))
    else:
        work.notes.append("llama-cpp-python is not installed, so llama.cpp itself was not asked")
    return checked
