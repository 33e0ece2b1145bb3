"""Stage, loss and what of a row teaches, from a training YAML of LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.job.foreign.lines import Imported
from core.job.foreign.llama_keys import LOSSES, STAGE, STAGES
from data.errors import refuse

Values = Mapping[str, Any]


def read_stage(values: Values, made: Imported, folder: Path) -> None:
    theirs = str(values.get("stage", "sft"))
    if theirs not in STAGES:
        raise refuse(
            "foreign_stage",
            f"stage {theirs!r} is none of LLaMA-Factory's ({', '.join(STAGES)}).",
            field="stage",
            value=theirs,
        )
    ours, loss = STAGES[theirs], values.get("pref_loss")
    if ours == "dpo" and loss == "orpo":
        ours = "orpo"
        made.tell("changed", "pref_loss", loss, "stage.name", "ORPO is a stage of its own")
    made.put("stage.name", ours)
    words = "" if ours == theirs else f"it is called {ours} here"
    made.tell("mapped" if ours == theirs else "changed", "stage", theirs, "stage.name", words)
    if ours == "dpo":
        _dpo_loss(values, made)
    _stage_settings(values, made, ours)


def _dpo_loss(values: Values, made: Imported) -> None:
    loss, weight = values.get("pref_loss", "sigmoid"), float(values.get("pref_ftx") or 0)
    if loss not in LOSSES:
        words = (
            "pairs are trained by dpo here, single answers with a label by the stage kto; sigmoid is taken"
        )
        made.tell("not mapped", "pref_loss", loss, None, words)
        loss = "sigmoid"
    elif "pref_loss" in values:
        made.tell("mapped", "pref_loss", loss, "stage.loss")
    losses = [LOSSES[str(loss)]]
    if weight and loss != "simpo":
        made.put("stage.loss_weights", [1.0, weight])
        losses.append("sft")
        made.tell("changed", "pref_ftx", weight, "stage.loss_weights", "an sft loss of that weight is added")
    elif "pref_ftx" in values:
        words = "simpo has a trainer of its own, which adds no sft loss" if weight else "0 adds nothing"
        made.tell("not mapped" if weight else "not needed", "pref_ftx", weight, None, words)
    made.put("stage.loss", losses)


def _stage_settings(values: Values, made: Imported, ours: str) -> None:
    for key, (stages, path) in STAGE.items():
        if key in values and ours in stages:
            made.put(path, values[key])
            made.tell("mapped", key, values[key], path)
        elif key in values:
            made.tell("not needed", key, values[key], None, f"the stage {ours} has no use for it")
    if (limit := values.get("cutoff_len")) is not None:
        path = "stage.max_prompt_length" if ours == "ppo" else "stage.max_length"
        made.put(path, limit)
        made.tell("mapped", "cutoff_len", limit, path)
    _trained_tokens(values, made, ours)
    if "max_new_tokens" in values and ours == "ppo":
        made.put("stage.max_completion_length", values["max_new_tokens"])
        made.tell("mapped", "max_new_tokens", values["max_new_tokens"], "stage.max_completion_length")


def _trained_tokens(values: Values, made: Imported, ours: str) -> None:
    for key, word in (("train_on_prompt", "all"), ("mask_history", "last_assistant")):
        if values.get(key) and ours == "sft":
            made.put("stage.train_on", word)
            made.tell("changed", key, values[key], "stage.train_on", f"that is train_on: {word}")
        elif key in values:
            made.tell("not needed", key, values[key], None, "the assistant's turns teach, as there")
    packed = [key for key in ("packing", "neat_packing") if values.get(key) is not None]
    for key in packed:
        if ours not in ("sft", "pretrain"):
            made.tell("not needed", key, values[key], None, f"the stage {ours} packs no rows")
            continue
        made.put("stage.packing", any(bool(values[one]) for one in packed))
        words = "packed rows never see each other here" if key == "packing" and values[key] else ""
        made.tell("changed" if words else "mapped", key, values[key], "stage.packing", words)
    if values.get("use_dft_loss") and ours == "sft":
        made.put("stage.loss", "dft")
        made.tell("changed", "use_dft_loss", True, "stage.loss", "that is loss: dft")
