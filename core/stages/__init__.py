"""What is trained for. One file per stage; a new stage is a file here, called like it, and its name in STAGES."""

from types import ModuleType

from core.job.register import Register

STAGES = Register(__name__, "pretrain", "sft", "reward", "dpo", "kto", "orpo", "ppo", "grpo", "rloo")


def stage_module(name: str) -> ModuleType:
    """The module of the stage called `name` (as in `stage.name` of a checked job)."""
    return STAGES.named(name)
