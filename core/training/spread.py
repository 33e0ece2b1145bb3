"""Weights that are spread over several processes, gathered where somebody needs them whole."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from core.runs.storage import write_json


def prepare(job: JobSpec, *, gpu: bool) -> None:
    """Before the libraries connect the processes: what DeepSpeed has to be told, and nobody else to pay for.

    On a CPU DeepSpeed 0.19 would compile a shortcut through shared memory first (24 s on two cores, with a lock file
    that hangs later runs when its maker dies), in which a process waits for ever for one that is gone; gloo does not.
    """
    import torch

    if (
        gpu and job.hardware.sharing != "none"
    ):  # or every process would load its 4-bit weights onto the first GPU
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    elif job.hardware.sharing != "none":
        # transformers 5.17 has each process load its optimizer to "cpu:0", which torch 2.13 does not know for a CPU.
        torch.serialization.register_package(
            9, lambda stored: None, lambda stored, place: stored if place.startswith("cpu:") else None
        )
    if not job.hardware.zero:
        import accelerate.utils.other

        # accelerate 1.15 imports DeepSpeed to see whether a model is one of its engines, which none is here.
        accelerate.utils.other.is_deepspeed_available = lambda: False
        return
    # DeepSpeed 0.19 calls torch 2.13's collectives by their old names, four lines in the log at every step.
    warnings.filterwarnings("ignore", "`torch.distributed.", FutureWarning)
    if not gpu:
        os.environ.setdefault(
            "DS_ACCELERATOR", "cpu"
        )  # or it looks for other devices, and says so in every log
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def keep_settings(arguments: Any, folder: Path) -> None:
    """Write what the trainer was told of sharing the work into the run: deepspeed.json or fsdp.json."""
    if arguments.deepspeed:
        write_json(folder / "deepspeed.json", arguments.deepspeed)
    elif arguments.fsdp:
        write_json(folder / "fsdp.json", arguments.fsdp_config)


@contextlib.contextmanager
def loaded_whole() -> Iterator[None]:
    """Load a model whole in every process, as the first one was; it is spread out when the trainer takes it.

    Once a trainer's settings name DeepSpeed's stage 3, transformers 5.17 would spread every model that is loaded.
    """
    from transformers import modeling_utils
    from transformers.integrations import deepspeed

    kept, asked = deepspeed._hf_deepspeed_config_weak_ref, modeling_utils.is_deepspeed_zero3_enabled
    deepspeed._hf_deepspeed_config_weak_ref = None
    modeling_utils.is_deepspeed_zero3_enabled = lambda: (
        False
    )  # a trainer's constructor sets the other one again
    try:
        yield
    finally:
        modeling_utils.is_deepspeed_zero3_enabled = asked
        if deepspeed._hf_deepspeed_config_weak_ref is None:
            deepspeed._hf_deepspeed_config_weak_ref = kept


def is_spread(model: Any) -> bool:
    """Whether a model holds only a share of its weights (DeepSpeed's stage 3, fsdp2): each forward needs everybody."""
    return any(hasattr(one, "ds_id") or hasattr(one, "full_tensor") for one in model.parameters())


def whole_weights(trainer: Any) -> dict[str, Any] | None:
    """All weights of a trainer's spread model, on the first process; None where the model has them itself.

    Every process must come here.
    """
    if not is_spread(trainer.model):
        return None
    weights: dict[str, Any] = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return weights


def load_weights(trainer: Any, checkpoint: Path) -> None:
    """Take the weights of a checkpoint of this run, whatever shares the work."""
    if trainer.is_deepspeed_enabled:
        from transformers.integrations.deepspeed import deepspeed_load_checkpoint

        deepspeed_load_checkpoint(trainer.model_wrapped, str(checkpoint))
    else:
        trainer._load_from_checkpoint(str(checkpoint))
