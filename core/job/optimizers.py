"""Optimizers by transformers' own names (OptimizerNames of transformers 5.17), and the package each one needs."""

from __future__ import annotations

from typing import Literal, get_args

Optimizer = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adafactor",
    "adamw_anyprecision",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "ademamix",
    "sgd",
    "adagrad",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "ademamix_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "stable_adamw",
]

_BY_BEGINNING = (
    # beginning of the name -> (package to install, module it brings)
    ("adamw_torch_xla", ("torch_xla", "torch_xla")),
    ("adamw_torch_npu", ("torch_npu", "torch_npu")),
    ("adamw_torch_4bit", ("torchao", "torchao")),
    ("adamw_torch_8bit", ("torchao", "torchao")),
    ("adamw_torch", None),
    ("adamw_anyprecision", ("torchdistx", "torchdistx")),
    ("adamw_bnb", ("bitsandbytes", "bitsandbytes")),
    ("adamw_8bit", ("bitsandbytes", "bitsandbytes")),
    ("ademamix", ("bitsandbytes", "bitsandbytes")),
    ("lion", ("bitsandbytes", "bitsandbytes")),
    ("paged", ("bitsandbytes", "bitsandbytes")),
    ("rmsprop_bnb", ("bitsandbytes", "bitsandbytes")),
    ("galore", ("galore-torch", "galore_torch")),
    ("lomo", ("lomo-optim", "lomo_optim")),
    ("adalomo", ("lomo-optim", "lomo_optim")),
    ("grokadamw", ("grokadamw", "grokadamw")),
    ("schedule_free", ("schedulefree", "schedulefree")),
    ("apollo", ("apollo-torch", "apollo_torch")),
    ("stable_adamw", ("torch-optimi", "optimi")),
)


def package_for(optimizer: str) -> tuple[str, str] | None:
    """(package, module) an optimizer needs beyond torch and transformers, or None."""
    return next((needs for beginning, needs in _BY_BEGINNING if optimizer.startswith(beginning)), None)


def optimizer_names() -> tuple[str, ...]:
    """All names, in the library's order."""
    return get_args(Optimizer)
