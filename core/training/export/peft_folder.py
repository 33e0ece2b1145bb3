"""Target adapter: what was learnt, as a peft folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from core.training.export import card
from core.training.export.reader import logits_of
from core.training.export.verify import (
    TOLERANCE,
    ask,
    check_generation,
    check_logits,
    check_tensors,
    check_tokenizer,
    failed,
)
from core.training.export.work import Work


def make_adapter(work: Work) -> list[str]:
    """Write the adapter and verify it; what was verified. Raises FactoryError when something differs."""
    source, folder = work.source, work.folder
    assert source.base is not None
    work.phase("loading the model", 0.1)
    model = source.load(work.merging_dtype(torch.float32))
    reference = logits_of(model, source.sequences())
    work.phase("writing", 0.4)
    model.save_pretrained(folder, selected_adapters=["default"])
    _name_base(folder, source.base, work.job.model.name)
    source.write_companions(folder, model.get_base_model())
    card.write_text(work, folder)
    work.phase("comparing every tensor", 0.55)
    tensors = check_tensors(folder, _tensors(source.folder))
    del model
    return [tensors, *_verify(work, str(source.base), reference)]


def _verify(work: Work, base: str, reference: list[Any]) -> list[str]:
    source = work.source
    work.phase("loading it in a fresh process", 0.65)
    found = ask(
        work.reader,
        "adapter",
        folder=str(work.folder),
        base=base,
        task=source.task,
        sequences=source.sequences(),
    )
    check_tokenizer(source.described(), found["tokenizer"])
    if source.task == "CAUSAL_LM":
        check_generation(found["generation"], source.ends())
    if found["base"] != _base_name(source.base, work.job.model.name):
        raise failed(f"adapter_config.json names the base {found['base']!r}", file="adapter_config.json")
    logits = check_logits(reference, found["logits"], TOLERANCE["fp32"], "peft's from_pretrained on the base")
    return ["tokenizer, chat template and ends of answers, read by a fresh process", logits]


def _base_name(base: Path | None, named: str) -> str:
    """What others should call the base: its hub id where it has one, else its folder."""
    return named if "/" in named and not Path(named).is_dir() else str(base)


def _name_base(folder: Path, base: Path, named: str) -> None:
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["base_model_name_or_path"] = _base_name(base, named)
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(str(folder / "adapter_model.safetensors")))
