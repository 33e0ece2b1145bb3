"""The settings of torch's own way to share weights out (FSDP 2), for the trainer. No torch.

Names and meanings: transformers 5.17's `fsdp_config`, which becomes accelerate 1.15's FullyShardedDataParallelPlugin.
"""

from __future__ import annotations

from typing import Any

from core.job.spec import JobSpec


def fsdp_settings(job: JobSpec) -> dict[str, Any]:
    """Keyword arguments for transformers' TrainingArguments: shard weights, gradients and optimizer states."""
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",  # one block at a time, by the model's own list of them
            "reshard_after_forward": True,
            "cpu_ram_efficient_loading": False,  # every process has read the weights already
            "state_dict_type": "FULL_STATE_DICT",  # a checkpoint that any number of processes can load
            "activation_checkpointing": False,  # train.gradient_checkpointing says it
        },
    }
