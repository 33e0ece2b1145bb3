"""How much memory a job takes at its fullest, part by part: arithmetic on the job and the model's shape, nothing else.

All sizes are bytes. Sources: ZeRO (arXiv 1910.02054, section 3) and DeepSpeed's estimators for what a strategy shares
out; LoRA (arXiv 2106.09685) and QLoRA (arXiv 2305.14314) for what is trained and how a base is held. What a block
keeps for the backward pass was counted on transformers 5.17's Llama (saved tensors of autograd), and the constants
marked `fitted` come from measured runs: benchmarks/forecast.py, table in benchmarks/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.job.hardware import StrategyName
from core.job.shape import ModelShape
from core.job.spec import JobSpec
from core.methods import ADAPTERS

MIB, GIB = 2**20, 2**30

PARTS: Mapping[str, str] = {
    "weights": "weights",
    "copies": "frozen copies",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "logits": "logits",
    "kv_cache": "KV cache",
    "framework": "framework",
}
"""The parts of a forecast and what people call them."""


@dataclass(frozen=True)
class Strategy:
    """How training is shared out over devices."""

    name: StrategyName = "none"
    devices: int = 1
    offload: bool = False
    """Optimizer states (and with deepspeed-3 the weights too) lie in the machine's memory."""

    @property
    def shards(self) -> tuple[int, int, int]:
        """By what weights, gradients and optimizer states are divided."""
        level = {"deepspeed-1": 1, "deepspeed-2": 2, "deepspeed-3": 3, "fsdp2": 3}.get(self.name, 0)
        return tuple(self.devices if level >= needed else 1 for needed in (3, 2, 1))  # type: ignore[return-value]


@dataclass(frozen=True)
class Recipe:
    """Bytes for each trained weight."""

    weights: float
    gradients: float
    optimizer: float


MIXED = Recipe(2, 2, 12)
"""The ZeRO paper's mixed precision: 16-bit weights and gradients, fp32 master weights and two moments: 16 in all."""
DEEPSPEED_2 = Recipe(2, 6, 12)
"""DeepSpeed's own estimate for stage 2: gradients in 16 and in 32 bits."""
DEEPSPEED_3 = Recipe(2, 4, 12)
"""DeepSpeed's own estimate for stage 3: 18 bytes shared out, and the 16-bit weights counted as gathered layers."""


def model_states(parameters: float, recipe: Recipe, strategy: Strategy) -> dict[str, float]:
    """Weights, gradients and optimizer states on one device, in bytes (ZeRO paper, figure 1)."""
    weights, gradients, optimizer = strategy.shards
    return {
        "weights": parameters * recipe.weights / weights,
        "gradients": parameters * recipe.gradients / gradients,
        "optimizer": parameters * recipe.optimizer / optimizer,
    }


def deepspeed_estimate(parameters: float, largest_layer: float, stage: int, devices: int) -> float:
    """What DeepSpeed's estimate_zero2/zero3_model_states_mem_needs say for one device, in bytes, without offload."""
    if stage == 2:
        return sum(model_states(parameters, DEEPSPEED_2, Strategy("deepspeed-2", devices)).values())
    states = model_states(parameters, DEEPSPEED_3, Strategy("deepspeed-3", devices))
    return states["gradients"] + states["optimizer"] + 2 * parameters / devices + 4 * largest_layer


# Bytes of optimizer states for each trained weight, by the beginning of the name; the last row is AdamW in fp32.
_OPTIMIZERS: tuple[tuple[str, float], ...] = (
    ("adamw_torch_4bit", 1.1),
    ("adamw_torch_8bit", 2.1),
    ("adamw_bnb_8bit", 2.1),
    ("adamw_8bit", 2.1),
    ("paged_adamw_8bit", 2.1),
    ("ademamix_8bit", 3.2),
    ("paged_ademamix_8bit", 3.2),
    ("ademamix", 12),
    ("paged_ademamix", 12),
    ("lion_8bit", 1.05),
    ("paged_lion_8bit", 1.05),
    ("lion", 4),
    ("paged_lion", 4),
    ("rmsprop_bnb_8bit", 1.05),
    ("rmsprop", 4),
    ("adagrad", 4),
    ("adafactor", 0.1),
    ("adalomo", 0.1),
    ("lomo", 0),
    ("sgd", 0),
    ("schedule_free_sgd", 4),
    ("apollo", 0.5),
    ("galore", 2),
    ("", 8),
)


def optimizer_bytes(name: str) -> float:
    """Bytes of optimizer states for each trained weight."""
    return next(size for beginning, size in _OPTIMIZERS if name.startswith(beginning))


@dataclass(frozen=True)
class Batch:
    """The heaviest batch that goes through the model at once on one device."""

    rows: int
    """Sequences; a pair counts as two."""
    longest: int
    """Tokens of the longest, to which the others are padded."""
    tokens: int
    """Tokens that are computed."""
    answers: int = 0
    """Tokens of the longest answer, for stages that generate."""
    generated: int = 0
    """Sequences generated at once."""


@dataclass(frozen=True)
class Memory:
    """Memory of one device at its fullest, part by part, and of the machine where something lies there."""

    parts: dict[str, float]
    moment: str
    """When it is fullest: forward, backward or generating."""
    host: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Place:
    """Where it runs, as far as memory goes."""

    gpu: bool
    half: bool = False
    """Whether arithmetic is in 16 bits."""
    strategy: Strategy = Strategy()
    room: float = math.inf
    """Bytes of one device, where that decides how much is done at once."""


PAIRS = ("dpo", "orpo", "reward")
ONLINE = ("grpo", "rloo", "ppo")

# Fitted on CPU runs with torch 2.13 (benchmarks/forecast.py): resident memory of the worker with everything imported.
CPU_FRAMEWORK = 515 * MIB
CPU_FEW_BITS = 45 * MIB
"""bitsandbytes and what it brings along: a process with and without. Most jobs do without (core/training/lean.py)."""
CPU_SLACK = {"lora": 1.75, "qlora": 2.8}
"""What the C library's heap holds beyond the tensors that live: an adapter's short-lived sums, and with 4 bits every
layer's unpacked weights, leave holes in it."""
CPU_SLACK_FUSED = 1.32
"""The same where adapters are computed in fewer passes (core/training/adapter_layer.py)."""
CPU_SLACK_OTHERS = 1.05
# CUDA's context, cuBLAS workspaces and loaded kernels; the caching allocator's rounding and fragmentation.
GPU_FRAMEWORK = 1.3 * GIB
GPU_SLACK = 1.1

CHUNK = 256
"""Tokens whose logits exist at once in trl 1.12's chunked loss (_CHUNKED_LM_HEAD_CHUNK_SIZE)."""
LOGITS_COPIES = 6
"""Logits, their log-softmax, its exponential, that times the logarithm, and the gradients of the first two."""
LOGITS_COPIES_FUSED = 1.25
"""One block of logits that becomes its own exponential, and what is picked from it (core/training/head_loss.py)."""
LOGITS_COPIES_DPO = 3.5
"""Of the longest answers; less is kept where answers differ in length, which most do. Fitted."""


# Read in Unsloth 2026.10.9 and its unsloth_zoo; not measured, as no GPU was there.
UNSLOTH_LOGIT = 16
"""Bytes it counts for a token's logit in its fused loss (fused_losses/cross_entropy_loss.py, _CE_BYTES_PER_LOGIT)."""
UNSLOTH_LOGITS = 4 * GIB
"""Most that its fused loss takes at once, and at most half of what is free as the first batch ends (same file)."""
UNSLOTH_KEPT = 2 * MIB
"""A block's input up to so large stays on the device (gradient_checkpointing.py, MINIMUM_SIZE)."""


def memory(job: JobSpec, shape: ModelShape, batch: Batch, place: Place) -> Memory:
    """The memory a resolved job takes at its fullest on one device."""
    states, host = _states(job, shape, place)
    activations = _activations(job, shape, batch, place)
    few_bits = job.method.name == "qlora" or job.stage.name == "ppo"
    framework = GPU_FRAMEWORK if place.gpu else CPU_FRAMEWORK + few_bits * CPU_FEW_BITS
    if by_unsloth(job, place):
        host += _moved_inputs(job, shape, batch)
        # Its fused loss looks once at what is free, in the first batch: nothing of the optimizer is there yet.
        free = place.room - framework - states["weights"] - states["copies"] - activations
        logits = _unsloth_logits(job, shape, batch, place, free)
    else:
        logits = _logits(job, shape, batch, place)
    moments = {
        "forward": {"gradients": _kept_gradients(job, states), "activations": activations, "logits": logits},
        "backward": {"gradients": states["gradients"], **_late(job, shape, batch, place, activations)},
        "generating": _generating(job, shape, batch, place) if batch.generated else {},
    }
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {**dict.fromkeys(PARTS, 0.0), **states, "gradients": 0.0, **moments[moment]}
    parts["framework"] = framework
    return Memory({name: parts[name] for name in PARTS}, moment, host)


def by_unsloth(job: JobSpec, place: Place) -> bool:
    """Whether Unsloth's kernels and losses do the work: on a GPU; on a CPU it falls back to the libraries' own."""
    return job.engine.name == "unsloth" and place.gpu


def trained_weights(job: JobSpec, shape: ModelShape) -> int:
    """How many weights move."""
    method = job.method
    if method.name in ADAPTERS:
        rank, target = method.rank, method.target  # type: ignore[attr-defined]
        outside = {"embed_tokens": shape.vocab * shape.hidden, "lm_head": shape.vocab * shape.hidden}
        whole = [outside.get(name, 0) for name in method.modules_to_save]  # type: ignore[attr-defined]
        return shape.adapter(rank, target) + sum(whole)
    if method.name == "freeze":
        share = min(1.0, method.layers / shape.layers)  # type: ignore[attr-defined]
        return int(shape.in_blocks * share) or 1
    return shape.parameters


def base_bytes(job: JobSpec, shape: ModelShape, place: Place) -> float:
    """Bytes of the model's own weights as they are held, none of them shared out."""
    plain = 2 if place.half and job.method.name != "full" else 4
    if job.method.name != "qlora":
        return shape.parameters * plain
    quantised = min(shape.in_blocks, shape.parameters)
    return quantised * _quantised_bytes(job) + (shape.parameters - quantised) * plain


def _quantised_bytes(job: JobSpec) -> float:
    """Bytes for a quantised weight: 4 bits and a constant per 64, itself in 8 bits when doubly quantised (QLoRA, 3)."""
    method = job.method
    if method.bits == "int8":  # type: ignore[attr-defined]
        return 1.0
    constants = 8 / 64 + 32 / (64 * 256) if method.double_quant else 32 / 64  # type: ignore[attr-defined]
    return (4 + constants) / 8


def _states(job: JobSpec, shape: ModelShape, place: Place) -> tuple[dict[str, float], float]:
    """Weights, copies, gradients and optimizer states on a device, and what lies in the machine's memory instead."""
    strategy, trained = place.strategy, trained_weights(job, shape)
    full = job.method.name == "full"
    own = base_bytes(job, shape, place) + (0 if full or job.method.name == "freeze" else 4 * trained)
    if full and place.half:
        own += 2 * shape.parameters  # autocast keeps a 16-bit copy of every fp32 weight for the step
    by_weights, by_gradients, by_optimizer = strategy.shards
    if (
        job.stage.name == "ppo"
    ):  # its value model, always trained in full, taken to be of the model's own size
        own, trained = own + 4 * shape.parameters, trained + shape.parameters
    states = {
        "weights": own / by_weights,
        "copies": frozen_copies(job, shape, place) / by_weights,
        "gradients": 4.0 * trained / by_gradients,
        "optimizer": optimizer_bytes(job.train.optimizer) * trained / by_optimizer,
    }
    if strategy.name == "ddp":
        states["gradients"] *= 2  # the buckets in which gradients travel
    if by_weights > 1:
        states["weights"] += 2 * 2 * shape.largest_layer  # one layer gathered while the next arrives
    host = 0.0
    if strategy.offload:
        # DeepSpeed's estimators with cpu_offload, without their spare half: beside the optimizer's states an fp32
        # copy and a gradient of every trained weight, and with stage 3 the weights.
        host = (optimizer_bytes(job.train.optimizer) + 8.0) * trained
        states["optimizer"] = 0.0
        if strategy.name == "deepspeed-3":
            host += own
            states["weights"] = 2.0 * 2 * shape.largest_layer
    return states, host


def frozen_copies(job: JobSpec, shape: ModelShape, place: Place) -> float:
    """Bytes of models that are only asked: the reference, and reward models, taken to be of the model's own size."""
    judges = (
        sum(reward.name == "model" for reward in job.rewards) * (2 if place.half else 4) * shape.parameters
    )
    return judges + (base_bytes(job, shape, place) if _has_reference(job) else 0.0)


def _has_reference(job: JobSpec) -> bool:
    """Whether a frozen copy is loaded to compare with; with an adapter, the model without it is the reference."""
    stage = job.stage
    if job.method.name in ADAPTERS:
        return False
    if stage.name == "dpo":
        return not _without_reference(job)
    if stage.name in ONLINE:
        return (getattr(stage, "beta", 0) or getattr(stage, "kl_coef", 0)) > 0
    return stage.name == "kto"


def _without_reference(job: JobSpec) -> bool:
    stage = job.stage
    return stage.reference == "precomputed" or stage.loss[0] in ("simpo", "cpo")  # type: ignore[attr-defined]


def _kept_gradients(job: JobSpec, states: Mapping[str, float]) -> float:
    """Gradients that are there while a forward pass runs: those of the batches before it in the same step."""
    return states["gradients"] if (job.train.gradient_accumulation or 1) > 1 else 0.0


def block_bytes(job: JobSpec, shape: ModelShape, place: Place, length: int) -> float:
    """Bytes that one block keeps for the backward pass, for each token."""
    adapter = job.method.name in ADAPTERS
    small = 2 if place.half else 4
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if adapter and by_unsloth(job, place):
        return (4 * shape.hidden + 2 * query + 2 * key + 2 * shape.intermediate) * small
    norms = (
        (2 if adapter else 4) * shape.hidden * 4
    )  # computed in fp32; scaled states only where the scale is trained
    feed = (4 if shape.gated else 2) * shape.intermediate
    inner = (3 * shape.hidden + 2 * query + 2 * key + feed) * small
    rank = 7 * job.method.rank * 4 if adapter else 0  # type: ignore[attr-defined]
    eager = 2.5 * shape.heads * length * small if job.model.attention == "eager" else 0.0
    return norms + inner + rank + eager


def _activations(job: JobSpec, shape: ModelShape, batch: Batch, place: Place) -> float:
    slack = GPU_SLACK if place.gpu else _cpu_slack(job)
    one = block_bytes(job, shape, place, batch.longest)
    blocks = shape.layers
    if job.method.name == "freeze":
        blocks = min(blocks, job.method.layers)  # type: ignore[attr-defined]
    if job.train.gradient_checkpointing:
        inputs = shape.layers if not _moved_inputs(job, shape, batch) or not place.gpu else 3
        kept = shape.hidden * (2 if place.half else 4) * inputs
        return slack * batch.tokens * (kept + one)  # the input of every block, and one block whole
    return slack * batch.tokens * one * blocks


def _moved_inputs(job: JobSpec, shape: ModelShape, batch: Batch) -> float:
    """Bytes in the machine's memory of the blocks' inputs that Unsloth's checkpointing moves there, in 16 bits.

    All but the last block's, each in page-locked memory, which torch hands out in powers of two; on the device stay
    that one and two on their way (unsloth_zoo, gradient_checkpointing.py: CPU_BUFFERS, GPU_BUFFERS, GPU_BUFFERS_B).
    """
    ours = job.engine.name == "unsloth" and job.engine.checkpointing == "unsloth"  # type: ignore[attr-defined]
    one = 2.0 * batch.tokens * shape.hidden
    if not ours or not job.train.gradient_checkpointing or one <= UNSLOTH_KEPT:
        return 0.0
    return (shape.layers - 1) * 2.0 ** math.ceil(math.log2(one))


def _cpu_slack(job: JobSpec) -> float:
    if job.method.name == "lora" and _fused(job) and not job.method.dropout:  # type: ignore[attr-defined]
        return CPU_SLACK_FUSED
    return CPU_SLACK.get(job.method.name, CPU_SLACK_OTHERS)


def _late(
    job: JobSpec, shape: ModelShape, batch: Batch, place: Place, activations: float
) -> dict[str, float]:
    """What is still held when the last gradient is made: one block; on a CPU all, as the heap gives nothing back."""
    if place.gpu:
        return {"activations": batch.tokens * block_bytes(job, shape, place, batch.longest)}
    head = 4.0 * shape.vocab * shape.hidden if job.method.name == "full" else 0.0
    return {
        "activations": activations,
        "logits": head,
    }  # the head's gradient, before it is added to the embedding's


def _logits(job: JobSpec, shape: ModelShape, batch: Batch, place: Place) -> float:
    stage = job.stage
    if stage.name == "reward":
        return 0.0
    if stage.name in ("sft", "pretrain") and getattr(stage, "loss", "nll") == "nll":
        copies = LOGITS_COPIES_FUSED if _fused(job) and not place.gpu else LOGITS_COPIES
        return CHUNK * shape.vocab * 4.0 * copies
    length = batch.answers or batch.longest
    copies = LOGITS_COPIES_DPO if stage.name == "dpo" and not place.gpu else LOGITS_COPIES
    return batch.rows * length * shape.vocab * ((2 if place.half else 4) + 4.0 * (copies - 1))


def _fused(job: JobSpec) -> bool:
    """Whether our shortcuts stand in for the libraries' ways; Unsloth brings its own."""
    return job.train.fused and job.engine.name != "unsloth"


def _unsloth_logits(job: JobSpec, shape: ModelShape, batch: Batch, place: Place, free: float) -> float:
    """Logits in Unsloth's fused loss: as many at once as it gives room to; its dpo and grpo are taken to be TRL's."""
    if job.stage.name not in ("sft", "pretrain"):
        return _logits(job, shape, batch, place)
    return min(batch.tokens * shape.vocab * float(UNSLOTH_LOGIT), UNSLOTH_LOGITS, max(0.0, free) / 2)


def _generating(job: JobSpec, shape: ModelShape, batch: Batch, place: Place) -> dict[str, float]:
    element = 2 if place.half else 4
    cache = batch.generated * batch.longest * shape.kv_bytes(element)
    return {"kv_cache": cache, "logits": 2 * batch.generated * shape.vocab * 4.0}


def shared_out(place: Place, name: StrategyName, devices: int, *, offload: bool = False) -> Place:
    """The same place with another strategy."""
    return replace(place, strategy=Strategy(name, devices, offload))


def heaviest_batch(
    job: JobSpec, *, longest: int | None = None, mean: float | None = None, devices: int = 1
) -> Batch:
    """The heaviest batch of a resolved job; without the data's lengths every row is as long as it may be.

    Without padding the longest rows seldom meet in one batch: their sum is taken as the mean of so many rows and
    one spread beyond it, which grows with the root of their number.
    """
    rows = job.train.batch_size or 1
    stage = job.stage
    if stage.name in ONLINE:
        prompt = min(longest or stage.max_prompt_length, stage.max_prompt_length)  # type: ignore[attr-defined]
        answer = stage.max_completion_length  # type: ignore[attr-defined]
        generated = rows * (job.train.gradient_accumulation or 1)
        generated = min(generated, getattr(stage, "local_rollout_forward_batch_size", generated))
        tokens = rows * (prompt + answer)
        return Batch(rows, prompt + answer, tokens, answers=answer, generated=generated)
    limit: int = stage.max_length  # type: ignore[attr-defined]
    top = min(longest or limit, limit)
    sequences = rows * (2 if stage.name in PAIRS else 1)
    whole = sequences * top
    if getattr(stage, "packing", False):
        top, whole = limit, rows * limit
    elif mean is not None and job.train.padding_free and job.train.neftune_alpha is None:
        whole = min(whole, math.ceil(sequences * mean + (top - mean) * math.sqrt(sequences)))
    return Batch(sequences, top, whole)
