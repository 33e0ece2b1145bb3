"""The job: everything that is asked for, in one checked object. Knows nothing of how it is done."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from core.engines import ENGINES
from core.engines.base import EngineSpec
from core.export import TARGETS
from core.export.base import ExportSpec
from core.job.base import OneOf, Revision, Spec, unit
from core.job.data import DataSpec, expand_data
from core.job.hardware import HardwareSpec
from core.job.optimizers import Optimizer
from core.launchers import LAUNCHERS
from core.launchers.base import LauncherSpec
from core.methods import METHODS
from core.methods.base import MethodSpec
from core.rewards import REWARDS
from core.rewards.base import RewardSpec
from core.stages import STAGES
from core.stages.base import StageSpec

SCHEMA_VERSION = 1
CANONICAL = ("prompt", "answer", "messages")
"""Columns that a row for rewards has under these names already."""
Name = Annotated[
    str,
    Field(
        pattern=r"^[\p{L}\p{N}][\p{L}\p{M}\p{N}._ -]{0,63}$",
        json_schema_extra={
            "shape": "1 to 64 letters (of any script), digits, dots, dashes, underscores and spaces"
        },
    ),
]

AnyStage = Annotated[StageSpec, OneOf(STAGES)]
AnyMethod = Annotated[MethodSpec, OneOf(METHODS)]
AnyEngine = Annotated[EngineSpec, OneOf(ENGINES)]
AnyLauncher = Annotated[LauncherSpec, OneOf(LAUNCHERS)]
AnyReward = Annotated[RewardSpec, OneOf(REWARDS)]
AnyExport = Annotated[ExportSpec, OneOf(TARGETS)]


class ModelSpec(Spec):
    """The model to start from."""

    name: str = Field(min_length=1, max_length=4096)
    """An embedded model (smollm2-135m), a local folder, or a hub id (org/name). Safetensors weights only."""
    revision: Revision | None = None
    """Branch, tag or commit on the hub; only for hub ids."""
    adapter: str | None = Field(None, min_length=1, max_length=4096)
    """A trained LoRA adapter to go on from (the model folder of a run); full training merges it first."""
    template: str | None = Field(None, max_length=4096)
    """Chat template: a name from templates/chat or a .jinja file; empty keeps the model's own."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention implementation; auto lets transformers choose (sdpa where it can)."""


def _expand_model(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Scheduler = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
]


class TrainSpec(Spec):
    """The schedule. Fields left empty take the preset of the stage, method and model size (core/job/presets.py)."""

    epochs: float | None = Field(None, gt=0, le=10_000)
    """Passes over the data. Preset per stage; ignored when max_steps is set."""
    max_steps: int | None = Field(None, ge=1, le=100_000_000, json_schema_extra=unit("steps"))
    """Stop after this many optimizer steps instead of after epochs."""
    batch_size: int | None = Field(None, ge=1, le=65_536, json_schema_extra=unit("rows per device"))
    """Per-device batch size: rows in one forward pass on one device."""
    gradient_accumulation: int | None = Field(None, ge=1, le=65_536, json_schema_extra=unit("batches"))
    """Batches summed before one optimizer step; effective batch = batch_size x this x processes."""
    global_batch_size: int | None = Field(None, ge=1, le=16_777_216, json_schema_extra=unit("rows a step"))
    """Rows of one optimizer step on all devices together, whatever their number; the accumulation follows from it."""
    learning_rate: float | None = Field(None, ge=0, le=1)
    """Peak learning rate. Preset per stage, method and model size (LoRA about 10x full fine-tuning)."""
    scheduler: Scheduler | None = None
    """How the learning rate falls after warmup (names of transformers' schedulers)."""
    scheduler_cycles: int = Field(1, ge=1, le=1000)
    """Restarts of cosine_with_restarts."""
    scheduler_floor: float = Field(0.1, ge=0, le=1)
    """Lowest rate of cosine_with_min_lr and warmup_stable_decay, as a share of the peak."""
    scheduler_decay: float = Field(0.1, gt=0, le=1)
    """Share of the run in which warmup_stable_decay falls."""
    warmup: float | None = Field(None, ge=0, le=1_000_000)
    """Warmup: below 1 a share of all steps, from 1 a number of steps."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """Decoupled weight decay of AdamW."""
    max_grad_norm: float = Field(1.0, ge=0, le=1000)
    """Gradients are scaled down to this norm; 0 switches clipping off."""
    optimizer: Optimizer = "adamw_torch_fused"
    """Optimizer, by transformers' name; some need a package of their own, which the check names."""
    padding_free: bool = True
    """Spend no time on padding: a batch's rows are laid end to end (same losses; left out with flash attention and
    NEFTune)."""
    fused: bool = True
    """On a CPU, fewer passes for the loss of sft and pretrain and for layers with LoRA, and one reading of a prompt for
    all its answers in grpo and rloo (same losses, same answers)."""
    neftune_alpha: float | None = Field(None, gt=0, le=1000)
    """Noise on the embeddings while training (NEFTune, arXiv 2310.05914); 5 is usual. Empty: none."""
    seed: int = Field(42, ge=0, le=2**31 - 1)
    """Seed of adapters, shuffling and dropout: same seed, same machine, same losses."""
    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward pass: less memory, a third slower. Preset: on for GPUs, off for CPU."""
    logging_steps: int | None = Field(None, ge=1, le=1_000_000, json_schema_extra=unit("steps"))
    """Write metrics every so many steps; the first and the last step are always written."""
    save_steps: int | None = Field(None, ge=1, le=100_000_000, json_schema_extra=unit("steps"))
    """Write a checkpoint every so many steps. Empty: every tenth of the run, and at its end."""
    eval_steps: int | None = Field(None, ge=1, le=100_000_000, json_schema_extra=unit("steps"))
    """Evaluate every so many steps when there is held-out data. Empty: every tenth of the run, and at its end."""
    keep_checkpoints: int = Field(2, ge=1, le=1000)
    """How many of the newest checkpoints stay; the best and pinned ones stay besides."""
    early_stopping: int | None = Field(None, ge=1, le=10_000, json_schema_extra=unit("evaluations"))
    """Stop when eval_loss has not improved for so many evaluations. Needs held-out data."""
    watchdog: bool = True
    """Stop when the loss runs away, warn when nothing is learnt or rewards say nothing (rules: docs/metrics.md)."""
    keep_best: bool = False
    """Deliver the weights of the best evaluation (lowest eval_loss) instead of the last step. Needs held-out data."""


class EvaluateSpec(Spec):
    """What is asked before and after training, to see the difference."""

    prompts: list[str] = Field([], max_length=50)
    """Questions answered before and after training. Empty: ten prompts of the data, three of them on
    the way."""
    every: int | None = Field(None, ge=1, le=100_000_000, json_schema_extra=unit("steps"))
    """Ask also every so many steps, to watch the answers change. Empty: only before and after."""
    max_new_tokens: int = Field(64, ge=1, le=8192, json_schema_extra=unit("tokens"))
    """Longest answer."""


class JobSpec(Spec):
    """One training job. Three lines are enough: model, data, stage."""

    schema_version: Literal[1] = 1
    """Version of this description."""
    name: Name | None = None
    """A name for people; runs get their own id."""
    model: Annotated[ModelSpec, BeforeValidator(_expand_model, json_schema_input_type=str | ModelSpec)]
    """The model to start from: a name, a folder or a hub id."""
    data: Annotated[DataSpec, BeforeValidator(expand_data, json_schema_input_type=str | DataSpec)]
    """The data to learn from: a file, or files with settings."""
    stage: AnyStage
    """What kind of training."""
    method: AnyMethod = Field(default_factory=lambda: METHODS.named("lora").Spec())
    """Which weights move."""
    train: TrainSpec = TrainSpec()
    """Schedule, batch, optimizer."""
    rewards: list[AnyReward] = Field([], max_length=20)
    """What a good answer is, for stages that learn from rewards; their scores are weighted and added up."""
    hardware: HardwareSpec = HardwareSpec()
    """Devices and precision."""
    engine: AnyEngine = Field(default_factory=lambda: ENGINES.named("trl").Spec())
    """The library that trains."""
    launcher: AnyLauncher = Field(default_factory=lambda: LAUNCHERS.named("local").Spec())
    """Where the training runs."""
    report_to: list[Literal["tensorboard", "wandb", "swanlab", "trackio", "mlflow"]] = []
    """Send metrics to these trackers as well, through transformers' own integrations; keys only by environment."""
    evaluate: EvaluateSpec = EvaluateSpec()
    """Answers before and after."""
    export: list[AnyExport] = Field([], max_length=20)
    """What is made of the finished model for use elsewhere, one after the other; `factory export` makes more later."""

    @property
    def data_settings(self) -> dict[str, Any]:
        """The data part as plain JSON for those who read rows, with the columns that rewards ask for kept."""
        plain = self.data.model_dump(mode="json")
        asked = [column for reward in self.rewards for column in reward.columns if column not in CANONICAL]
        return {**plain, "keep": list(dict.fromkeys([*plain["keep"], *asked]))}
