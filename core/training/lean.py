"""What most jobs do without, kept from being imported along with their libraries."""

from __future__ import annotations

import sys
from pathlib import Path

from core.job.models import locate, read_config
from core.job.optimizers import package_for
from core.job.spec import JobSpec


def needs_bitsandbytes(job: JobSpec, home: Path) -> bool:
    """Whether a job holds weights in few bits, or may: where that cannot be seen beforehand the answer is yes.

    Raises FactoryError for a model that is not here.
    """
    if job.method.name == "qlora" or (package_for(job.train.optimizer) or ("",))[0] == "bitsandbytes":
        return True
    if job.stage.name == "ppo" or any(reward.name == "model" for reward in job.rewards):
        return True  # brings models of its own
    return in_few_bits(job.model.name, job.model.revision, home)


def in_few_bits(name: str, revision: str | None, home: Path) -> bool:
    """Whether a model comes in few bits, or may. Raises FactoryError for one that is not here."""
    place = locate(name, home, revision=revision)
    if place.folder is None:
        return place.gguf is None  # embedded ones are unpacked in full precision
    return bool(read_config(place.folder).get("quantization_config"))


def leave_out_bitsandbytes() -> None:
    """Let peft take bitsandbytes for absent in this process, if neither is imported yet.

    peft 0.21 imports it for every job and with it torch's compiler: a fifth of what all imports of a training process
    cost. Who wants it later can still import it, but layers in few bits would get no adapters from peft.
    """
    if {"peft", "bitsandbytes"} & sys.modules.keys():
        return
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]
    try:
        from peft import import_utils

        for remembered in (import_utils.is_bnb_available, import_utils.is_bnb_4bit_available):
            remembered()
    finally:
        del sys.modules["bitsandbytes"]
