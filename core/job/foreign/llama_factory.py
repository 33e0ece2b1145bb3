"""A training YAML of LLaMA-Factory, read into our job: its flat keys, dataset_info.json names and template names.

Three tables hold what the keys are: PLAIN goes into a field as it stands, TURNED through a function of its own, and
NO_PLACE says why there is none. Every key of its documentation stands in one of them (tests/unit/test_import.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.job.foreign.lines import Imported
from core.job.foreign.values import settle
from data.errors import Finding, refuse
from data.userpath import user_path

Values = Mapping[str, Any]
STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}
LOSSES = {"sigmoid": "sigmoid", "hinge": "hinge", "ipo": "ipo", "simpo": "simpo"}
TEMPLATES = {
    "alpaca": "alpaca",
    "chatml": "chatml",
    "deepseek": "deepseek",
    "default": "plain",
    "gemma": "gemma",
    "llama2": "llama2",
    "llama3": "llama3",
    "mistral": "mistral",
    "phi": "phi",
    "qwen": "qwen",
    "vicuna": "vicuna",
    "zephyr": "zephyr",
}
"""Their templates that are ours too, under the name in templates/chat; the others come with the models themselves."""
ATTENTION = {"auto": "auto", "disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2"}
TRACKERS = ("tensorboard", "wandb", "swanlab", "trackio", "mlflow")

PLAIN: dict[str, str] = {
    "model_name_or_path": "model.name",
    "seed": "train.seed",
    "per_device_train_batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.gradient_accumulation",
    "learning_rate": "train.learning_rate",
    "num_train_epochs": "train.epochs",
    "lr_scheduler_type": "train.scheduler",
    "weight_decay": "train.weight_decay",
    "max_grad_norm": "train.max_grad_norm",
    "optim": "train.optimizer",
    "logging_steps": "train.logging_steps",
    "save_steps": "train.save_steps",
    "eval_steps": "train.eval_steps",
    "save_total_limit": "train.keep_checkpoints",
    "load_best_model_at_end": "train.keep_best",
    "early_stopping_steps": "train.early_stopping",
    "neftune_noise_alpha": "train.neftune_alpha",
    "run_name": "name",
}
FLOATS = ("learning_rate", "num_train_epochs", "weight_decay", "max_grad_norm", "neftune_noise_alpha")

ADAPTER: dict[str, str] = {
    "lora_rank": "method.rank",
    "lora_alpha": "method.alpha",
    "lora_dropout": "method.dropout",
    "use_rslora": "method.rslora",
    "use_dora": "method.dora",
}
STAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "pref_beta": (("dpo", "kto", "orpo"), "stage.beta"),
    "dpo_label_smoothing": (("dpo",), "stage.label_smoothing"),
    "simpo_gamma": (("dpo",), "stage.simpo_gamma"),
    "kto_chosen_weight": (("kto",), "stage.desirable_weight"),
    "kto_rejected_weight": (("kto",), "stage.undesirable_weight"),
    "ppo_epochs": (("ppo",), "stage.num_ppo_epochs"),
    "ppo_whiten_rewards": (("ppo",), "stage.whiten_rewards"),
    "temperature": (("ppo",), "stage.temperature"),
}
"""Keys that only some stages have, and our field there."""


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
    for step in (_stage, _model, _template, _method, _data, _schedule, _rest):
        step(values, made, folder)
    told = {line.key for line in made.lines}
    for key, value in given.items():
        if key not in told and value is None:
            made.tell("not needed", key, value, None, "null says nothing")
        elif key not in told:
            words = NO_PLACE.get(key, "it is no key of LLaMA-Factory's documentation")
            made.tell("not needed" if words in _DONE_ANYWAY else "not mapped", key, value, None, words)
    order = list(given)
    made.lines.sort(key=lambda line: order.index(line.key) if line.key in order else len(order))
    return made


def _stage(values: Values, made: Imported, folder: Path) -> None:
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


def _model(values: Values, made: Imported, folder: Path) -> None:
    name = values.get("model_name_or_path")
    if name:
        made.put("model.name", _place(str(name), folder))
        made.tell("mapped", "model_name_or_path", name, "model.name")
    revision = values.get("model_revision")
    if revision not in (None, "main"):
        made.put("model.revision", revision)
        made.tell("mapped", "model_revision", revision, "model.revision")
    elif revision:
        made.tell("not needed", "model_revision", revision, None, "main is taken anyway")
    if adapters := values.get("adapter_name_or_path"):
        first, *others = _names(adapters) or [""]
        if others:
            words = "one adapter goes on learning here, not several; merge them first"
            made.tell("not mapped", "adapter_name_or_path", adapters, None, words)
        else:
            made.put("model.adapter", _place(first, folder))
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


def _method(values: Values, made: Imported, folder: Path) -> None:
    theirs, bits = values.get("finetuning_type", "lora"), values.get("quantization_bit")
    if theirs not in ("lora", "full", "freeze"):
        words = f"{theirs} is no method here; lora is taken"
        made.tell("not mapped", "finetuning_type", theirs, None, words)
        theirs = "lora"
    elif "finetuning_type" in values:
        made.tell("mapped", "finetuning_type", theirs, "method.name")
    made.put("method.name", theirs)
    if theirs == "lora":
        _adapter(values, made, bits)
    if theirs == "freeze":
        _freeze(values, made)
    for key in (*ADAPTER, "lora_target", "additional_target", "pissa_init", "quantization_bit", *QUANTISED):
        if key in values and not any(line.key == key for line in made.lines):
            made.tell("not needed", key, values[key], None, f"the method {theirs} has no use for it")


QUANTISED = ("quantization_type", "double_quantization", "quantization_method")


def _adapter(values: Values, made: Imported, bits: Any) -> None:
    rank = int(values.get("lora_rank", 8))
    made.put("method.rank", rank)
    made.put(
        "method.alpha", int(values.get("lora_alpha") or 2 * rank)
    )  # their defaults: 8, and twice the rank
    for key, path in ADAPTER.items():
        if key in values and values[key] is not None:
            made.put(path, values[key])
            made.tell("mapped", key, values[key], path)
    if (target := values.get("lora_target")) is not None:
        names = _names(target)
        made.put("method.target", "all-linear" if names == ["all"] else names)
        words = "called all-linear here" if names == ["all"] else ""
        made.tell("changed" if words else "mapped", "lora_target", target, "method.target", words)
    if extra := values.get("additional_target"):
        made.put("method.modules_to_save", _names(extra))
        made.tell("mapped", "additional_target", extra, "method.modules_to_save")
    if values.get("pissa_init"):
        made.put("method.init", "pissa")
        made.tell(
            "changed", "pissa_init", True, "method.init", "that is init: pissa, by an exact decomposition"
        )
    if bits is not None:
        _quantised(values, made, bits)


def _quantised(values: Values, made: Imported, bits: Any) -> None:
    kind = {4: "nf4", 8: "int8"}.get(bits)
    how = values.get("quantization_method", "bitsandbytes")
    if kind is None or how not in ("bitsandbytes", "bnb"):
        words = "bases are held in 4 bits (nf4) or 8 bits (int8) by bitsandbytes here; it is loaded as it is"
        made.tell("not mapped", "quantization_bit", bits, None, words)
        return
    made.put("method.name", "qlora")
    made.put("method.bits", kind)
    made.tell("changed", "quantization_bit", bits, "method.bits", f"that is method: qlora with {kind}")
    if "quantization_method" in values:
        made.tell("mapped", "quantization_method", how, "method.name")
    if (told := values.get("quantization_type")) is not None:
        words = "" if told == "nf4" else "fp4 is not offered; nf4 holds weights better at the same size"
        made.tell("changed" if words else "mapped", "quantization_type", told, "method.bits", words)
    if (double := values.get("double_quantization")) is not None and kind == "nf4":
        made.put("method.double_quant", bool(double))
        made.tell("mapped", "double_quantization", double, "method.double_quant")


def _freeze(values: Values, made: Imported) -> None:
    layers = int(values.get("freeze_trainable_layers", 2))
    if layers < 0:
        words = "the last layers move here, never the first; 2 are taken"
        made.tell("not mapped", "freeze_trainable_layers", layers, None, words)
        layers = 2
    elif "freeze_trainable_layers" in values:
        made.tell("mapped", "freeze_trainable_layers", layers, "method.layers")
    made.put("method.layers", layers)
    if extra := values.get("freeze_extra_modules"):
        made.put("method.modules", _names(extra))
        made.tell("mapped", "freeze_extra_modules", extra, "method.modules")
    if (modules := values.get("freeze_trainable_modules")) is not None:
        whole = _names(modules) == ["all"]
        words = "all modules of the layers move, as there" if whole else "whole layers move here"
        made.tell("not needed" if whole else "not mapped", "freeze_trainable_modules", modules, None, words)


def _data(values: Values, made: Imported, folder: Path) -> None:
    directory = Path(_place(str(values.get("dataset_dir", "data")), folder, always=True))
    registry = str(directory / "dataset_info.json")
    names = _names(values.get("dataset") or "")
    take = values.get("max_samples")
    sources: list[dict[str, Any]] = [{"registry": registry, "name": name} for name in names]
    for source in sources:
        source |= {"take": int(take)} if take else {}
    if len(sources) == 1:
        for key, value in sources[0].items():
            made.put(f"data.{key}", value)
    elif sources:
        made.put("data.sources", sources)
    if names:
        words = f"names of {registry}" if len(names) == 1 else f"{len(names)} names of {registry}"
        made.tell("changed", "dataset", values["dataset"], "data.registry", words)
    if "dataset_dir" in values:
        made.tell("mapped", "dataset_dir", values["dataset_dir"], "data.registry")
    if take:
        words = "the first so many good rows of each source"
        made.tell("mapped", "max_samples", take, "data.take", words)
    _held_out(values, made, registry)
    mix = values.get("mix_strategy")
    if mix == "concat":
        made.tell("not needed", "mix_strategy", mix, None, "sources are put together whole, as there")
    elif mix is not None:
        words = "sources are put together whole; data.sources has a weight for each"
        made.tell("not mapped", "mix_strategy", mix, None, words)


def _held_out(values: Values, made: Imported, registry: str) -> None:
    size = values.get("val_size")
    if size is not None and 0 < float(size) < 1:
        made.put("data.eval", float(size))
        made.tell("mapped", "val_size", size, "data.eval")
    elif size:
        words = "held-out rows are a share here (0.05), not a number of rows; set data.eval"
        made.tell("not mapped", "val_size", size, None, words)
    elif size is not None:
        made.tell("not needed", "val_size", size, None, "0 holds nothing out")
    told = _names(values.get("eval_dataset") or "")
    if not told:
        return
    file = _file_of(Path(registry), told[0])
    if len(told) == 1 and file is not None:
        made.put("data.eval", file)
        made.tell("changed", "eval_dataset", told[0], "data.eval", "the entry's file")
    else:
        words = f"held-out rows are one file here, and {registry} does not name it; set data.eval to its path"
        made.tell("not mapped", "eval_dataset", values["eval_dataset"], None, words)


def _file_of(registry: Path, name: str) -> str | None:
    """The file of an entry of dataset_info.json; None when that cannot be read or names none."""
    try:
        entry = json.loads(registry.read_text("utf-8"))[name]
        return str(registry.parent / entry["file_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unread_registries(job: Mapping[str, Any]) -> list[Finding]:
    """An error for each dataset_info.json that a made job names and that is not there."""
    data = job.get("data", {})
    sources = data.get("sources") or [data]
    missing = sorted(
        {one["registry"] for one in sources if "registry" in one and not _is_file(one["registry"])}
    )
    return [
        Finding(
            "foreign_registry_missing",
            f"data.registry: there is no {path}, which the datasets are named in; set dataset_dir to its folder.",
            field="data.registry",
            value=path,
        )
        for path in missing
    ]


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long, or with a null byte in it
        return False


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
    _precision(values, made)
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


def _precision(values: Values, made: Imported) -> None:
    for key in ("bf16", "pure_bf16", "fp16"):
        if key not in values:
            continue
        if not values[key]:
            made.tell("not needed", key, values[key], None, "precision auto does without it where it must")
        elif key == "fp16":
            made.put("hardware.precision", "fp16")
            made.tell("mapped", key, True, "hardware.precision")
        else:
            made.put("hardware.precision", "auto")
            words = "auto is bf16 where the GPU has it, with fp32 weights where these are trained in full"
            made.tell("changed", key, True, "hardware.precision", words)


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
            made.put("rewards", [{"name": "model", "source": _place(str(reward), folder)}])
            made.tell("changed", "reward_model", reward, "rewards", "a reward called model")
            if "reward_model_type" in values:
                made.tell("mapped", "reward_model_type", kind, "rewards")
        else:
            words = f"a reward model of type {kind} is no whole classifier; export it merged, then name it in rewards"
            made.tell("not mapped", "reward_model", reward, None, words)
    if (trackers := values.get("report_to")) is not None:
        wanted = trackers if isinstance(trackers, list) else _names(trackers)
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


SECRETS = ("hf_hub_token", "ms_hub_token", "om_hub_token", "swanlab_api_key", "swanlab_lark_secret")


def _names(text: Any) -> list[str]:
    parts = text if isinstance(text, list) else str(text).split(",")
    return [str(part).strip() for part in parts if str(part).strip()]


def _place(name: str, folder: Path, *, always: bool = False) -> str:
    """A path as it is meant from the foreign file; a hub id stays as it is."""
    here = folder / user_path(name)
    try:
        there = here.exists()
    except OSError:  # too long for a path
        there = False
    return str(here) if always or there else name


_GROUPS: dict[str, str] = {
    "one process on one machine trains, so far": """deepspeed fsdp fsdp_config ddp_timeout ddp_find_unused_parameters
        ddp_backend local_rank ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers
        resources_per_worker placement_strategy ray_init_kwargs use_mca use_kt kt_optimize_rule cpu_infer chunk_size
        mode kt_maxlen kt_use_cuda_graph kt_mode kt_force_think""",
    "a run has a folder of its own under the home folder (--home)": """output_dir overwrite_output_dir logging_dir
        save_only_model""",
    "curves and answers are part of every run": """plot_loss compute_accuracy predict_with_generate
        include_num_input_tokens_seen include_effective_tokens_per_second include_tokens_per_second""",
    "a run trains; factory train does what these switches ask for": """do_train do_eval do_predict do_sample
        evaluation_strategy eval_strategy save_strategy logging_strategy metric_for_best_model greater_is_better
        per_device_eval_batch_size eval_accumulation_steps eval_num_beams eval_on_each_dataset""",
    "a run goes on from its own checkpoints: factory resume ID": "resume_from_checkpoint",
    "rows are prepared once and kept in a cache that knows when it is stale": """overwrite_cache
        preprocessing_num_workers preprocessing_batch_size tokenized_path streaming buffer_size dataloader_num_workers
        dataloader_pin_memory cache_dir data_shared_file_system""",
    "padding never counts in the loss": "ignore_pad_token_for_loss group_by_length",
    "code that comes with a model is never run": "trust_remote_code",
    "the vocabulary stays the model's own": """resize_vocab split_special_tokens new_special_tokens add_tokens
        add_special_tokens new_special_tokens_config init_special_tokens use_fast_tokenizer""",
    "models are loaded as transformers loads them": """low_cpu_mem_usage adapter_folder offload_folder use_cache
        use_kv_cache use_reentrant_gc print_param_status compute_dtype device_map model_max_length block_diag_attn
        infer_dtype upcast_layernorm upcast_lmhead_output quantization_device_map remove_unused_columns""",
    "the architecture stays the model's own": """rope_scaling shift_attn mixture_of_depths moe_aux_loss_coef
        train_from_scratch use_llama_pro freeze_vision_tower freeze_multi_modal_projector freeze_language_model""",
    "kernels of others are chosen by an engine: engine: unsloth brings its own": """use_unsloth use_unsloth_gc
        enable_liger_kernel use_v1_kernels fp8 fp8_backend fp8_enable_fsdp_float8_all_gather torch_compile""",
    "this kind of adapter or its start is not offered": """module_dropout oft_rank oft_block_size oft_target
        loraplus_lr_ratio loraplus_lr_embedding create_new_adapter pissa_iter""",
    "a run always delivers an adapter that fits the plain base": "pissa_convert",
    "the optimizer works with its library's own settings": """galore_target galore_rank galore_update_interval
        galore_scale galore_proj_type galore_layerwise apollo_target apollo_rank apollo_update_interval apollo_scale
        apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise apollo_scale_front""",
    "this optimizer is not offered": """use_badam badam_mode badam_start_block badam_switch_mode badam_switch_interval
        badam_update_ratio badam_mask_mode badam_verbose use_adam_mini use_muon""",
    "the model itself (or itself without the adapter) is the reference": """ref_model ref_model_adapters
        ref_model_quantization_bit""",
    "a reward model is loaded as it is: export it merged, then name its folder in rewards": """reward_model
        reward_model_adapters reward_model_quantization_bit reward_model_type""",
    "PPO keeps near its reference by a fixed kl_coef and takes whole batches": """ppo_buffer_size ppo_score_norm
        ppo_target""",
    "this loss has no such term here": "ld_alpha pref_bco_weight",
    "rows are shuffled by the seed": "disable_shuffling data_seed",
    "only text is trained": """media_dir image_dir image_resolution image_max_pixels image_min_pixels
        image_do_pan_and_scan crop_to_patches video_resolution video_max_pixels video_min_pixels video_fps video_maxlen
        use_audio_in_video audio_sampling_rate""",
    "tools stand in the rows, and the template writes them": "tool_format default_system enable_thinking",
    "sources are put together whole; data.sources has a weight for each": "interleave_probs",
    "trackers take their settings from the environment": """swanlab_project swanlab_workspace swanlab_run_name
        swanlab_mode swanlab_logdir swanlab_lark_webhook_url""",
    "how a finished model is asked is no part of its training": """infer_backend vllm_maxlen vllm_gpu_util
        vllm_enforce_eager vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size
        sglang_config sglang_lora_backend top_p top_k num_beams max_length max_new_tokens repetition_penalty
        length_penalty skip_special_tokens""",
    "exports are made by factory export, verified and in safetensors": """export_device export_quantization_bit
        export_quantization_dataset export_quantization_nsamples export_quantization_maxlen export_legacy_format
        export_hub_model_id export_size push_to_hub hub_model_id hub_strategy hub_private_repo""",
    "benchmarks of a finished model are no part of its training": """task task_dir batch_size lang n_shot save_dir
        download_mode""",
}
_DONE_ANYWAY = (
    "a run has a folder of its own under the home folder (--home)",
    "curves and answers are part of every run",
    "a run trains; factory train does what these switches ask for",
    "a run goes on from its own checkpoints: factory resume ID",
    "rows are prepared once and kept in a cache that knows when it is stale",
    "padding never counts in the loss",
    "models are loaded as transformers loads them",
    "a run always delivers an adapter that fits the plain base",
    "how a finished model is asked is no part of its training",
)
"""Reasons that mean: nothing is lost."""
NO_PLACE: dict[str, str] = {key: words for words, keys in _GROUPS.items() for key in keys.split()}
"""Keys that are not carried over, and why."""
TURNED: frozenset[str] = frozenset(
    """stage pref_loss pref_ftx cutoff_len train_on_prompt mask_history packing neat_packing use_dft_loss
    model_revision adapter_name_or_path flash_attn template finetuning_type quantization_bit quantization_type
    double_quantization quantization_method lora_target additional_target pissa_init freeze_trainable_layers
    freeze_extra_modules freeze_trainable_modules dataset dataset_dir eval_dataset max_samples val_size mix_strategy
    max_steps warmup_steps warmup_ratio bf16 pure_bf16 fp16 gradient_checkpointing disable_gradient_checkpointing
    use_galore use_apollo reward_model reward_model_type report_to use_swanlab export_dir export_size
    max_new_tokens""".split()
)
"""Keys that become something else, or hang on others."""


def known_keys() -> frozenset[str]:
    """Every key that has an answer."""
    return TURNED | {*PLAIN, *ADAPTER, *STAGE, *SECRETS, *NO_PLACE}
