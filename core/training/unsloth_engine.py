"""Unsloth inside the training process: FastLanguageModel's weights and adapters under our stages and callbacks.

`begin` imports the library, which replaces classes of transformers, peft and trl: it must come before any of them, so
nothing heavy is imported at the top of this file. Written for Unsloth 2026.10.9 with trl 1.12 in its environment, the
same version as in ours: no stage is different.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from data.errors import refuse


def begin(job: JobSpec, home: Path) -> None:
    """Import Unsloth. Raises FactoryError where it is not installed in this Python."""
    os.environ |= variables(job, home)
    try:
        import unsloth  # noqa: F401
    except ImportError as problem:
        raise refuse(
            "engine_not_installed",
            f"engine unsloth cannot be imported by {sys.executable} ({problem}); run: factory env install unsloth",
            field="engine.name",
            value="unsloth",
        ) from problem


def variables(job: JobSpec, home: Path) -> dict[str, str]:
    """The environment variables that Unsloth reads as it is imported."""
    told = {
        "UNSLOTH_COMPILE_LOCATION": str(home / "cache" / "unsloth"),  # else a folder in the checkout
        "UNSLOTH_DISABLE_STATISTICS": "1",  # it would fetch a file from the hub to be counted
    }
    return told if job.train.padding_free else {**told, "UNSLOTH_DISABLE_AUTO_PADDING_FREE": "1"}


def load(job: JobSpec, home: Path, *, gpu: bool) -> Any:
    """The model of the job, ready for `wear`. Raises FactoryError when it cannot be loaded as the job says."""
    from transformers import AutoConfig
    from unsloth import FastLanguageModel

    from core.training.model import broken, model_folder

    folder, bits = model_folder(job.model, home), getattr(job.method, "bits", None)
    try:
        limit = getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", None)
        model, _ = FastLanguageModel.from_pretrained(str(folder), **loading(job, gpu=gpu, limit=limit))
    except (OSError, ValueError, KeyError, ImportError) as problem:
        raise broken(job, problem) from problem
    if bits is not None and not getattr(model, "is_quantized", False):
        raise refuse(
            "not_quantised",
            f"Unsloth loaded the model without the {bits} of method.bits: its 4-bit layers do not go with this model "
            "or machine; choose engine trl, or method lora.",
            field="method.bits",
            value=bits,
        )
    model.config.use_cache = False  # training never reads a cache; generation asks for one itself
    return model


def loading(job: JobSpec, *, gpu: bool, limit: int | None) -> dict[str, Any]:
    """Keyword arguments of FastLanguageModel.from_pretrained; `limit` is the longest text the model was made for."""
    from core.training.model import dtype_of

    bits = getattr(job.method, "bits", None)
    return {
        # Never above what the model was made for: Unsloth would stretch its positions.
        "max_seq_length": min(longest(job), limit or longest(job)),
        "dtype": dtype_of(job, gpu=gpu),
        "load_in_4bit": bits == "nf4",
        "load_in_8bit": bits == "int8",
        "full_finetuning": job.method.name == "full",
        "use_gradient_checkpointing": checkpointing(job),
        "random_state": job.train.seed,
        "use_exact_model_name": True,
        "trust_remote_code": False,
        "use_safetensors": True,
        "local_files_only": True,
    }


def wear(model: Any, job: JobSpec) -> Any:
    """The model with what learns: everything, or a fresh adapter drawn from the job's seed as engine trl draws it.

    Raises FactoryError when a name in `target` or `modules_to_save` is not in the model.
    """
    from unsloth import FastLanguageModel

    from core.training.modules import check_module_names

    spec: Any = job.method
    if spec.name == "full":
        return model.requires_grad_(True)
    check_module_names(model, spec.target, "method.target")
    check_module_names(model, spec.modules_to_save, "method.modules_to_save")
    return FastLanguageModel.get_peft_model(model, **adapter(job))


def adapter(job: JobSpec) -> dict[str, Any]:
    """Keyword arguments of FastLanguageModel.get_peft_model."""
    spec: Any = job.method
    return {
        "r": spec.rank,
        "target_modules": spec.target,
        "lora_alpha": spec.alpha,
        "lora_dropout": spec.dropout,
        "bias": "none",
        "use_rslora": spec.rslora,
        "modules_to_save": spec.modules_to_save or None,
        "init_lora_weights": True if spec.init == "default" else spec.init,
        "use_gradient_checkpointing": checkpointing(job),
        "random_state": job.train.seed,
    }


def checkpointing(job: JobSpec) -> bool | str:
    """train.gradient_checkpointing and engine.checkpointing in Unsloth's words."""
    engine: Any = job.engine
    if not job.train.gradient_checkpointing:
        return False
    return "unsloth" if engine.checkpointing == "unsloth" else True


def longest(job: JobSpec) -> int:
    """Tokens of the longest sequence of the stage."""
    stage: Any = job.stage
    if hasattr(stage, "max_completion_length"):
        return int(stage.max_prompt_length + stage.max_completion_length)
    return int(stage.max_length)
