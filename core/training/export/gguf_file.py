"""Target gguf: the merged weights in llama.cpp's file format, written by the package gguf (0.19) tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from core.export import gguf as target
from core.export.base import GGUF_ARCHITECTURES
from core.training.export import card, gguf_check
from core.training.export.gguf_vocab import Vocabulary
from core.training.export.merged_folder import merged_model
from core.training.export.work import Work
from data.errors import refuse

FILE = "model.gguf"
F16_MOST = 65504.0


def make_gguf(work: Work) -> list[str]:
    """Convert and verify; what was verified. Raises FactoryError when something differs."""
    verified = write_gguf(work, work.spec.quant)
    card.write_text(work, work.folder)
    return verified


def write_gguf(work: Work, quant: str) -> list[str]:
    """Write FILE into the work's folder and verify it; what was verified."""
    source = work.source
    config = source.config()
    check_rope(config)
    Vocabulary(source.tokenizer, source.folder, config.vocab_size)  # before the long work, not after it
    model, reference = merged_model(work, torch.float32)
    path = work.folder / FILE
    plain = quant if quant in target.PLAIN else "f16"
    work.phase(f"writing {plain}", 0.4)
    first = path if plain == quant else path.with_name("f16.gguf")
    writer = open_writer(first, work, model, plain)
    tensors = list(gguf_tensors(model))
    write_tensors(writer, tensors, plain)
    work.phase("comparing every tensor", 0.55)
    shape = hyperparameters(model.config)
    checked = [gguf_check.check_header(first, source, shape), gguf_check.check_tensors(first, tensors)]
    settings: dict[str, Any] = {"head_dim": shape["attention.key_length"]}
    if scaled_rope(config):
        settings["rope_parameters"] = dict(config.rope_parameters)
    del model, tensors, writer
    if first != path:
        from core.training.export.llama import quantise

        work.phase(f"quantising to {quant}", 0.62)
        quantise(first, path, quant)
        first.unlink()
        checked = [gguf_check.check_header(path, source, shape)]
    return [*checked, *gguf_check.read_back(work, path, quant, reference, settings)]


def open_writer(path: Path, work: Work, model: Any, quant: str) -> Any:
    """A writer with everything but the tensors said."""
    config, source = model.config, work.source
    architecture = GGUF_ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(work.job.name or work.run.id)
    writer.add_type("model")
    writer.add_file_type(
        {"f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}[quant]
    )
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, value in hyperparameters(config).items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{name}", value)
    Vocabulary(source.tokenizer, source.folder, config.vocab_size).add_to(writer, source.ends())
    return writer


def hyperparameters(config: Any) -> dict[str, int | float]:
    """What the file says about the model's shape, by GGUF's names (docs/gguf.md of ggml)."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "rope.dimension_count": head,
        "vocab_size": config.vocab_size,
    }


def check_rope(config: Any) -> None:
    """Refuse positions that a GGUF file cannot say in a way both its readers agree on."""
    kind = config.rope_parameters.get("rope_type", "default")
    if kind not in ("default", "llama3"):
        raise refuse(
            "gguf_rope_unknown",
            f"The model scales its positions by {kind!r}, which is not written yet (default and llama3 are); export it "
            "as merged.",
            value=kind,
        )
    windows = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if windows and windows < config.max_position_embeddings:
        raise refuse(
            "gguf_sliding_window",
            f"The model attends to the last {windows:,} tokens only, which llama.cpp's {config.model_type} does not; "
            "export it as merged.",
            value=windows,
        )


def scaled_rope(config: Any) -> bool:
    """Whether positions are scaled (Llama 3.1 and later), which stands in the file as factors of each frequency."""
    return bool(config.rope_parameters.get("rope_type", "default") != "default")


def gguf_tensors(model: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Every tensor of the file under its GGUF name, fp32, in the order of the model; tied heads are left out.

    llama.cpp's llama turns pairs of neighbours where transformers turns halves, so query and key rows change places
    (as in its convert_hf_to_gguf.py).
    """
    config = model.config
    architecture = GGUF_ARCHITECTURES[config.model_type]
    kind = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    if scaled_rope(config):
        yield "rope_freqs.weight", _rope_factors(model)
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            raise refuse(
                "gguf_tensor_unknown",
                f"The model has a tensor {name} that GGUF has no name for; export it as merged.",
                value=name,
            )
        values = tensor.detach().float().cpu().numpy()
        if architecture == "llama" and (heads := _rotated(new, config)):
            values = _neighbours(values, heads)
        yield new, values


def _rotated(name: str, config: Any) -> int | None:
    """How many heads a query or key tensor holds; None for other tensors."""
    part = name.rsplit(".", 2)[-2]
    return {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(part)


def _neighbours(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from two halves to pairs: (heads, 2, half, ...) to (heads, half, 2, ...)."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def _rope_factors(model: Any) -> np.ndarray[Any, Any]:
    """By what each frequency is divided: the plain ones over those that the model computes with."""
    rotary = model.model.rotary_emb.inv_freq.float().cpu().numpy()
    theta = float(model.config.rope_parameters["rope_theta"])
    plain = theta ** (-np.arange(len(rotary), dtype=np.float64) / len(rotary))
    return (plain / rotary).astype(np.float32)


def type_of(name: str, values: np.ndarray[Any, Any], quant: str) -> Any:
    """How a tensor is stored: vectors in fp32, matrices as asked, in f16 where a row is no whole number of blocks."""
    kinds = gguf.GGMLQuantizationType
    if values.ndim == 1:
        return kinds.F32
    if quant == "q8_0" and values.shape[-1] % 32 == 0:
        return kinds.Q8_0
    return kinds.F32 if np.abs(values).max() > F16_MOST else kinds.F16


def write_tensors(writer: Any, tensors: list[tuple[str, np.ndarray[Any, Any]]], quant: str) -> None:
    """Quantise and write, one tensor in memory at a time. Raises OSError when the disk does not take it."""
    kinds = [type_of(name, values, quant) for name, values in tensors]
    for (name, values), kind in zip(tensors, kinds, strict=True):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (*values.shape[:-1], values.shape[-1] // block * size) if block > 1 else values.shape
        dtype = {gguf.GGMLQuantizationType.F32: np.float32, gguf.GGMLQuantizationType.F16: np.float16}
        stored = np.dtype(dtype.get(kind, np.uint8))
        writer.add_tensor_info(
            name,
            shape,
            stored,
            int(np.prod(values.shape)) // block * size,
            raw_dtype=None if block == 1 else kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for (_, values), kind in zip(tensors, kinds, strict=True):
        writer.write_tensor_data(gguf.quants.quantize(values, kind))
    writer.close()
