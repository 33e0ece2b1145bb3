"""Target merged: adapter and base as one model, tied weights right, written in the precision of the base."""

from __future__ import annotations

from typing import Any

import torch

from core.training.export import card
from core.training.export.reader import logits_of
from core.training.export.source import DTYPES, NAMES
from core.training.export.verify import (
    TOLERANCE,
    as_written,
    ask,
    check_generation,
    check_keys,
    check_logits,
    check_tensors,
    check_tokenizer,
    failed,
)
from core.training.export.work import Work


def make_merged(work: Work) -> list[str]:
    """Merge, write and verify; what was verified. Raises FactoryError when something differs."""
    dtype = work.dtype(work.spec.dtype)
    model, reference = merged_model(work, dtype)
    write(work, model, shard_size=getattr(work.spec, "shard_size", 5.0))
    work.phase("comparing every tensor", 0.6)
    tensors = check_tensors(work.folder, as_written(model))
    del model  # the reader needs the memory
    return [tensors, *read_back(work, NAMES[dtype], reference)]


def merged_model(work: Work, dtype: torch.dtype) -> tuple[Any, list[Any]]:
    """The run's model without an adapter in it, in `dtype`, and the logits it gave before, in fp32."""
    source = work.source
    if dtype == torch.float16:
        work.notes.append("fp16 has a small range; the verification would tell of weights that do not fit it")
    work.phase("loading the model", 0.1)
    model = source.load(work.merging_dtype(dtype))
    work.phase("asking the model before the merge", 0.25)
    reference = logits_of(model, source.sequences())
    if source.is_adapter:
        work.phase("merging the adapter", 0.35)
        model = merge(model)
        if (held := source.quantised()) is not None:
            work.notes.append(f"trained beside a base held in {held}, merged onto its unquantised weights")
    model = model.to(dtype)
    model.config.dtype = dtype
    return model, reference


def merge(worn: Any) -> Any:
    """The base with the adapter's changes in its weights, and the head untied where the adapter changed one end only.

    peft 0.21 merges in place: with tied embeddings a change of the input end would change the output end too.
    """
    base = worn.get_base_model()
    tied = bool(getattr(base.config.get_text_config(), "tie_word_embeddings", False))
    ends = [_plain(base.get_input_embeddings()), _plain(base.get_output_embeddings())] if tied else []
    shared = len(ends) == 2 and all(one is not None for one in ends) and ends[0].weight is ends[1].weight
    if shared and _touched(base):
        ends[1].weight = torch.nn.Parameter(ends[1].weight.detach().clone(), requires_grad=False)
    model = worn.merge_and_unload()
    if tied:
        _tie(model)
    return model


def _touched(base: Any) -> bool:
    """Whether the adapter has something to say about the embeddings or the head."""
    return any(
        one is not None and _plain(one) is not one
        for one in (base.get_input_embeddings(), base.get_output_embeddings())
    )


def _plain(module: Any) -> Any:
    """The library's own layer inside peft's wrappers."""
    while module is not None:
        inner = getattr(module, "base_layer", None) or getattr(module, "original_module", None)
        if inner is None:
            return module
        module = inner
    return None


def _tie(model: Any) -> None:
    """Say in the config whether input and output embeddings still are one, which decides what is written and read."""
    head, entry = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is entry.weight:
        return
    if head.weight.shape == entry.weight.shape and torch.equal(head.weight, entry.weight):
        head.weight = entry.weight
        return
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False
    model._tied_weights_keys = None  # or save_pretrained leaves the head out
    if hasattr(model, "all_tied_weights_keys"):
        model.all_tied_weights_keys = {}


def write(work: Work, model: Any, *, shard_size: float) -> None:
    """Weights in shards of so many GB, tokenizer, template, generation config, card."""
    work.phase("writing", 0.45)
    if model.can_generate():
        model.generation_config = work.source.generation(model)
    # transformers takes whole numbers only.
    model.save_pretrained(work.folder, max_shard_size=f"{max(1, round(shard_size * 1e6))}KB")
    work.source.write_companions(work.folder, model)
    card.write_text(work, work.folder)


def read_back(work: Work, dtype: str, reference: list[Any]) -> list[str]:
    """What a fresh process finds in the folder: tokenizer, template, generation config, precision, logits."""
    source = work.source
    work.phase("loading it in a fresh process", 0.7)
    asked = {"folder": str(work.folder), "task": source.task, "sequences": source.sequences()}
    found = ask(work.reader, "merged", **asked)
    check_keys(found["wrong keys"])
    check_tokenizer(source.described(), found["tokenizer"])
    if source.task == "CAUSAL_LM":
        check_generation(found["generation"], source.ends())
    expected = str(DTYPES[dtype]).removeprefix("torch.")
    if found["dtype"] != expected:
        raise failed(f"config.json says {found['dtype']}, and the weights are {expected}", file="config.json")
    logits = check_logits(reference, found["logits"], TOLERANCE[dtype], "transformers' from_pretrained")
    return ["tokenizer, chat template and ends of answers, read by a fresh process", logits]
