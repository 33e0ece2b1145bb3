"""A training YAML of LLaMA-Factory, read into our job: its flat keys, dataset_info.json names and template names.

What its keys are stands in llama_keys; the parts that are more than a table are read by the files beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.job.foreign.lines import Imported
from core.job.foreign.llama_data import read_data
from core.job.foreign.llama_hardware import read_engine, read_precision, read_strategy
from core.job.foreign.llama_keys import (
    ATTENTION,
    DONE_ANYWAY,
    FLOATS,
    NO_PLACE,
    PLAIN,
    SECRETS,
    TEMPLATES,
    TRACKERS,
)
from core.job.foreign.llama_method import read_method
from core.job.foreign.llama_stage import read_stage
from core.job.foreign.values import meant_from, names_in, settle
from data.errors import refuse

Values = Mapping[str, Any]


def import_job(values: Values, folder: Path) -> Imported:
    """Our job of a LLaMA-Factory one; `folder` is where its relative paths are meant from.

    Every key has a line in the report. Raises FactoryError for a file that describes no training.
    """
    if "model_name_or_path" not in values and {"model", "data"} & set(values):
        text = "This file is a job of Factory already; use it as it is: factory check, then factory train."
        raise refuse("already_a_job", text)
    if not values.get("model_name_or_path") and not values.get("stage"):
        raise refuse(
            "not_a_llama_factory_job",
            "This file has neither model_name_or_path nor stage, so it is no training of LLaMA-Factory.",
        )
    made, given = Imported(), values
    values = settle(given)
    for step in (
        read_stage,
        _model,
        _template,
        read_method,
        read_data,
        _schedule,
        read_strategy,
        read_engine,
        _rest,
    ):
        step(values, made, folder)
    told = {line.key for line in made.lines}
    for key, value in given.items():
        if key not in told and value is None:
            made.tell("not needed", key, value, None, "null says nothing")
        elif key not in told:
            words = NO_PLACE.get(key, "it is no key of LLaMA-Factory's documentation")
            made.tell("not needed" if words in DONE_ANYWAY else "not mapped", key, value, None, words)
    order = list(given)
    made.lines.sort(key=lambda line: order.index(line.key) if line.key in order else len(order))
    return made


def _model(values: Values, made: Imported, folder: Path) -> None:
    name = values.get("model_name_or_path")
    if name:
        made.put("model.name", meant_from(str(name), folder))
        made.tell("mapped", "model_name_or_path", name, "model.name")
    revision = values.get("model_revision")
    if revision not in (None, "main"):
        made.put("model.revision", revision)
        made.tell("mapped", "model_revision", revision, "model.revision")
    elif revision:
        made.tell("not needed", "model_revision", revision, None, "main is taken anyway")
    if adapters := values.get("adapter_name_or_path"):
        first, *others = names_in(adapters) or [""]
        if others:
            words = "one adapter goes on learning here, not several; merge them first"
            made.tell("not mapped", "adapter_name_or_path", adapters, None, words)
        else:
            made.put("model.adapter", meant_from(first, folder))
            made.tell("mapped", "adapter_name_or_path", adapters, "model.adapter")
    if (attention := values.get("flash_attn")) is not None:
        word = ATTENTION.get(str(attention), "auto")
        made.put("model.attention", word)
        words = "" if word == attention else f"called {word} here"
        made.tell("changed" if words else "mapped", "flash_attn", attention, "model.attention", words)


def _template(values: Values, made: Imported, folder: Path) -> None:
    name = values.get("template")
    if name is None:
        return
    if name in TEMPLATES:
        ours = TEMPLATES[str(name)]
        made.put("model.template", ours)
        words = "" if ours == name else f"called {ours} here"
        made.tell("changed" if words else "mapped", "template", name, "model.template", words)
    else:
        words = "the model's own chat template is used; if it has none, set model.template"
        made.tell("changed", "template", name, None, words)


def _schedule(values: Values, made: Imported, folder: Path) -> None:
    for key, path in PLAIN.items():
        if key in values and key != "model_name_or_path" and values[key] is not None:
            made.put(path, float(values[key]) if key in FLOATS else values[key])
            made.tell("mapped", key, values[key], path)
    if (steps := values.get("max_steps")) is not None and int(steps) > 0:
        made.put("train.max_steps", int(steps))
        made.tell("mapped", "max_steps", steps, "train.max_steps")
        _without(made, "num_train_epochs", "train.epochs", "max_steps is set, which goes before epochs")
    _warmup(values, made)
    read_precision(values, made)
    for key, on in (("disable_gradient_checkpointing", False), ("gradient_checkpointing", True)):
        if key in values:
            made.put("train.gradient_checkpointing", on if values[key] else not on)
            words = "said the other way round" if key.startswith("disable") else ""
            made.tell(
                "changed" if words else "mapped", key, values[key], "train.gradient_checkpointing", words
            )
    if values.get("use_badam") or values.get("use_galore") or values.get("use_apollo"):
        _special_optimizer(values, made)


def _without(made: Imported, key: str, path: str, words: str) -> None:
    """Take a field out again, and tell so."""
    head, _, last = path.partition(".")
    if made.job.get(head, {}).pop(last, None) is not None:
        made.lines = [line for line in made.lines if line.key != key]
        made.tell("not needed", key, None, None, words)


def _warmup(values: Values, made: Imported) -> None:
    steps, share = values.get("warmup_steps"), values.get("warmup_ratio")
    if steps:
        made.put("train.warmup", float(steps))
        made.tell("mapped", "warmup_steps", steps, "train.warmup")
        if share is not None:
            made.tell("not needed", "warmup_ratio", share, None, "warmup_steps goes before it")
        return
    if share is not None:
        made.put("train.warmup", float(share))
        made.tell("mapped", "warmup_ratio", share, "train.warmup", "below 1 it is a share of the steps")
    if steps is not None:
        made.tell("not needed", "warmup_steps", steps, None, "0 says nothing")


def _special_optimizer(values: Values, made: Imported) -> None:
    for name, ours in (("galore", "galore_adamw"), ("apollo", "apollo_adamw")):
        if values.get(f"use_{name}"):
            layerwise = "_layerwise" if values.get(f"{name}_layerwise") else ""
            made.put("train.optimizer", ours + layerwise)
            words = f"that is optimizer: {ours}{layerwise}, with the library's own rank and scale"
            made.tell("changed", f"use_{name}", True, "train.optimizer", words)


def _rest(values: Values, made: Imported, folder: Path) -> None:
    if (reward := values.get("reward_model")) is not None and made.job["stage"]["name"] == "ppo":
        kind = values.get("reward_model_type", "lora")
        if kind == "full":
            made.put("rewards", [{"name": "model", "source": meant_from(str(reward), folder)}])
            made.tell("changed", "reward_model", reward, "rewards", "a reward called model")
            if "reward_model_type" in values:
                made.tell("mapped", "reward_model_type", kind, "rewards")
        else:
            words = f"a reward model of type {kind} is no whole classifier; export it merged, then name it in rewards"
            made.tell("not mapped", "reward_model", reward, None, words)
    if (trackers := values.get("report_to")) is not None:
        wanted = trackers if isinstance(trackers, list) else names_in(trackers)
        known = [one for one in wanted if one in TRACKERS]
        made.put("report_to", known)
        words = "" if known == wanted else f"known here are {', '.join(TRACKERS)}"
        made.tell(
            "mapped" if not words or wanted == ["none"] else "changed",
            "report_to",
            trackers,
            "report_to",
            words,
        )
    if values.get("use_swanlab"):
        made.put("report_to", sorted({*made.job.get("report_to", []), "swanlab"}))
        made.tell("changed", "use_swanlab", True, "report_to", "one of report_to")
    if values.get("export_dir"):
        made.put("export", [{"name": "merged"}])
        made.tell(
            "changed", "export_dir", values["export_dir"], "export", "in the run's own folder, verified"
        )
        if (size := values.get("export_size")) is not None:
            made.put("export", [{"name": "merged", "shard_size": float(size)}])
            made.tell("mapped", "export_size", size, "export")
    for key in SECRETS:
        if values.get(key):
            made.tell("not mapped", key, "***", None, "secrets are environment variables, never in a job")
