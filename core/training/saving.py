"""A finished model becomes a folder that is whole or is not there: weights, tokenizer, template, generation config."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from core.job.spec import ModelSpec
from core.runs.storage import sync_file, sync_folder
from data.errors import refuse

START = "adapter_start"
"""Folder in the run that keeps an adapter as it was before training, where that changed the base."""


def commit_folder(temporary: Path, target: Path, facts: dict[str, Any], *, replace: bool = False) -> None:
    """Make a finished temporary folder visible as `target`, with a COMPLETE.json that names its files and sizes.

    Every file and folder is fsynced before the rename, so a power cut leaves the whole folder or none.
    Raises FactoryError when `target` exists: nothing is overwritten, unless `replace` says so.
    """
    if target.exists() and not replace:
        raise refuse(
            "target_exists", f"{str(target)!r} exists already and is not overwritten; move it away first."
        )
    files = {
        str(p.relative_to(temporary)): p.stat().st_size for p in sorted(temporary.rglob("*")) if p.is_file()
    }
    (temporary / "COMPLETE.json").write_text(json.dumps({**facts, "files": files}, indent=1), "utf-8")
    for path in sorted(temporary.rglob("*"), reverse=True):
        (sync_folder if path.is_dir() else sync_file)(path)
    sync_folder(temporary)
    aside = target.with_name(f".trash-{os.getpid()}-{target.name}")
    if target.exists():
        target.rename(aside)
    temporary.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def keep_start(model: Any, folder: Path) -> None:
    """Write the untrained adapter, unless an earlier attempt did: `save_model` needs it to give back the plain base."""
    if not folder.exists():
        config = model.peft_config["default"]
        config.init_lora_weights = True  # as peft 0.21 asks for before such a conversion
        model.save_pretrained(folder)


def _write_weights(model: Any, folder: Path, start: Path, weights: dict[str, Any] | None) -> None:
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        model.save_pretrained(folder, state_dict=weights)
    elif start.is_dir():
        # The adapter relative to the unchanged base: its rank doubles, and everybody can load it.
        model.save_pretrained(folder, path_initial_model_for_weight_conversion=str(start))
    else:
        model.save_pretrained(folder, selected_adapters=["default"], state_dict=weights)


def has_other_names(model: Any, folder: Path) -> bool:
    """Whether a model's own files in a folder hold tensors by other names, or in other pieces, than it has them.

    transformers 5.17 writes some families as they always were: each expert for itself, GPT-NeoX's head as embed_out.
    """
    from safetensors import safe_open

    names = set(model.state_dict())
    for file in folder.glob("model*.safetensors"):
        with safe_open(str(file), framework="pt") as content:
            if not names.issuperset(content.keys()):
                return True
    return False


def read_weights(model: Any, folder: Path) -> dict[str, Any]:
    """All tensors of a model's own files in a folder, by the model's names and in its pieces, in fp32."""
    read = type(model).from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False, use_safetensors=True, local_files_only=True
    )
    return dict(read.state_dict())


def save_model(
    trainer_model: Any,
    tokenizer: Any,
    target: Path,
    base: ModelSpec,
    facts: dict[str, Any],
    weights: dict[str, Any] | None = None,
) -> None:
    """Write the result of a run: safetensors weights or adapter, tokenizer, chat template, generation config.

    `weights` are the whole ones where the model itself holds only a share of them.
    A model that an earlier attempt of the run finished is replaced when the new one is whole.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _write_weights(trainer_model, temporary, target.parent / START, weights)
        tokenizer.save_pretrained(temporary)
        if (generation := getattr(trainer_model, "generation_config", None)) is not None:
            generation.save_pretrained(temporary)  # a classifier has none
        if not any(temporary.glob("*.safetensors")):
            raise refuse("model_not_saved", "the trained model wrote no weights; see log.txt.")
        commit_folder(temporary, target, {"base": base.name, **facts}, replace=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
