"""The shape of a model from its config.json, or where that says too little, from the headers of its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.job.models import EMBEDDED, ModelPlace, read_config, tensor_sizes

# Families whose feed-forward part has two matrices instead of three (no gate), by model_type.
UNGATED = frozenset(
    "gpt2 gpt_neo gpt_neox gptj gpt_bigcode codegen opt bloom falcon phi starcoder2 mpt xglm biogpt stablelm_epoch "
    "persimmon pythia nemotron rwkv".split()
)
TIED = frozenset("gpt2 gpt_neo gemma gemma2 gemma3 gemma3_text bloom falcon opt cohere cohere2".split())
"""Families that share the embedding with the output head when config.json does not say."""

FUSED = frozenset(
    "afmoe cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe "
    "glm4_moe_lite glm4v_moe glm_moe_dsa hunyuan_v1_moe longcat_flash mellum minimax minimax_m2 mixtral olmoe "
    "qwen2_moe qwen3_moe qwen3_next solar_open".split()
)
"""Mixtures whose experts and router get adapters with all-linear, as peft 0.21 does it, though no linear layers."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "per_token": ("num_experts_per_tok", "moe_topk"),
    "expert_size": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "context": ("max_position_embeddings", "n_positions", "max_sequence_length"),
}


@dataclass(frozen=True)
class ModelShape:
    """What memory and time follow from. Sizes are elements."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    """Width of the feed-forward part that one token goes through."""
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    linears: tuple[tuple[str, int, int, int], ...]
    """Linear layers inside the blocks: last name, inputs, outputs, how many in the model."""
    gated: bool = True
    context: int | None = None
    """Longest text the model was made for, in tokens."""
    idle: int = 0
    """Weights that a token does not pass: experts that are not chosen."""
    from_config: bool = True
    adapted: tuple[tuple[int, int, int], ...] = ()
    """What gets an adapter with all-linear and is no linear layer: inputs, outputs, how often the rank in the model."""

    @property
    def active(self) -> int:
        """Weights that work on one token."""
        return self.parameters - self.idle

    @property
    def in_blocks(self) -> int:
        """Weights of the linear layers inside the blocks: what QLoRA quantises."""
        return sum(inputs * outputs * count for _, inputs, outputs, count in self.linears)

    @property
    def largest_layer(self) -> int:
        """Weights of the largest part that is gathered at once: a block, or the embedding."""
        outside = self.vocab * self.hidden * (1 if self.tied else 2)
        return max((self.parameters - outside) // max(1, self.layers), self.vocab * self.hidden)

    def adapter(self, rank: int, target: str | list[str]) -> int:
        """Weights of a LoRA adapter: rank x (inputs + outputs) for every linear layer it sits on (arXiv 2106.09685)."""
        chosen = [one[1:] for one in self.linears if target == "all-linear" or one[0] in target]
        chosen += self.adapted if target == "all-linear" else ()
        return sum(rank * (inputs + outputs) * count for inputs, outputs, count in chosen)

    def kv_bytes(self, element: int = 2) -> int:
        """Bytes of the key-value cache for one token: 2 x layers x heads x size x bytes of an element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element


def shape_of(place: ModelPlace) -> ModelShape | None:
    """The shape of a model that is here; None when none of its files are. Raises FactoryError for broken files."""
    if place.folder is None:
        return from_config(EMBEDDED[place.name].config) if place.kind == "embedded" else None
    sizes = tensor_sizes(place.folder)
    counted = sum(_product(size) for size in sizes.values()) or None
    config = read_config(place.folder)
    return from_config(config, parameters=counted) or (from_sizes(sizes) if sizes else None)


def from_config(config: Mapping[str, Any], *, parameters: int | None = None) -> ModelShape | None:
    """The shape that a config.json tells, with the true number of weights where it is known; None when it does not."""
    text = config.get("text_config")
    told = {**config, **text} if isinstance(text, Mapping) else config
    size = {name: _number(told, keys) for name, keys in _NAMES.items()}
    hidden, layers, heads, vocab = (size[name] for name in ("hidden", "layers", "heads", "vocab"))
    if not (hidden and layers and heads and vocab):
        return None
    family = str(told.get("model_type", ""))
    head_dim = size["head_dim"] or max(1, hidden // heads)
    kv_heads = 1 if told.get("multi_query") else size["kv_heads"] or heads
    intermediate, gated = size["intermediate"] or 4 * hidden, family not in UNGATED
    tied = told.get("tie_word_embeddings", family in TIED) is True
    query, key = heads * head_dim, kv_heads * head_dim
    linears = [("q_proj", hidden, query), ("k_proj", hidden, key), ("v_proj", hidden, key)]
    linears += [("o_proj", query, hidden)]
    experts = size["experts"] or 0
    width = size["expert_size"] or intermediate
    feed = [("gate_proj", hidden, intermediate)] * gated
    feed += [("up_proj", hidden, intermediate), ("down_proj", intermediate, hidden)]
    if not experts:
        linears += feed  # experts are one tensor in transformers 5
    block = sum(inputs * outputs for _, inputs, outputs in linears) + 2 * hidden
    expert = (3 if gated else 2) * hidden * width
    counted = layers * (block + experts * expert) + vocab * hidden * (1 if tied else 2) + hidden
    used = size["per_token"] or 1
    return ModelShape(
        parameters=parameters or counted,
        layers=layers,
        hidden=hidden,
        intermediate=width * used if experts else intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        tied=tied,
        linears=tuple((name, inputs, outputs, layers) for name, inputs, outputs in linears),
        gated=gated,
        context=size["context"],
        idle=layers * max(0, experts - used) * expert if experts else 0,
        adapted=_of_experts(hidden, width, experts, layers) if experts and family in FUSED else (),
    )


def _of_experts(hidden: int, width: int, experts: int, layers: int) -> tuple[tuple[int, int, int], ...]:
    """Router, and each expert's two matrices: gate and up are one, whose adapter has the rank of both."""
    each = layers * experts
    return (hidden, experts, layers), (width, hidden, each), (hidden, 2 * width, 2 * each)


_BLOCK = re.compile(r"\.(\d+)\.")


def from_sizes(sizes: Mapping[str, tuple[int, ...]]) -> ModelShape:
    """The shape that tensor names and sizes suggest, for an architecture whose config.json says nothing we know."""
    parameters = sum(_product(size) for size in sizes.values())
    flat = {name: size for name, size in sizes.items() if len(size) == 2}
    inside = {name: size for name, size in flat.items() if _BLOCK.search(name)}
    outside = [size for name, size in flat.items() if name not in inside]
    vocab, hidden = max(outside, key=_product, default=(1, max((s[1] for s in flat.values()), default=1)))
    layers = len({_BLOCK.search(name).group(1) for name in inside}) or 1  # type: ignore[union-attr]
    linears: dict[tuple[str, int, int], int] = {}
    for name, (outputs, inputs) in inside.items():
        key = (name.removesuffix(".weight").rsplit(".", 1)[-1], inputs, outputs)
        linears[key] = linears.get(key, 0) + 1
    head_dim = 64 if hidden % 64 == 0 else hidden
    return ModelShape(
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        intermediate=max((max(size) for size in inside.values()), default=4 * hidden),
        heads=hidden // head_dim,
        kv_heads=hidden // head_dim,
        head_dim=head_dim,
        vocab=vocab,
        tied=len(outside) < 2,
        linears=tuple((*key, count) for key, count in linears.items()),
        from_config=False,
    )


def _number(told: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    found = (told.get(key) for key in keys)
    fits = (one for one in found if isinstance(one, int) and not isinstance(one, bool) and 0 < one < 10**9)
    return next(fits, None)


def _product(size: tuple[int, ...]) -> int:
    total = 1
    for one in size:
        total *= one
    return total
