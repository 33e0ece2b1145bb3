"""What is trained for. One file per stage; a new stage is a file here and its name in STAGES."""

from types import ModuleType

from core.stages import dpo, grpo, kto, orpo, ppo, pretrain, reward, rloo, sft

STAGES: tuple[ModuleType, ...] = (pretrain, sft, reward, dpo, kto, orpo, ppo, grpo, rloo)


def stage_module(name: str) -> ModuleType:
    """The module of the stage called `name` (as in `stage.name` of a checked job)."""
    return next(module for module in STAGES if module.Spec.model_fields["name"].default == name)
