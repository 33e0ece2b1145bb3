"""The text of an ejected training: short, readable, TRL's own words, no import of Factory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from core.methods import ADAPTERS
from core.training import eject_rewards
from core.training.context import Context
from data.errors import refuse

DROPPED = {"run_name", "report_to", "disable_tqdm", "save_total_limit", "trust_remote_code", "output_dir"}


def refuse_what_cannot(job: JobSpec) -> None:
    """Raise FactoryError for what a short script of trl cannot do."""
    if job.engine.name != "trl":
        text = f"A job of engine {job.engine.name} cannot be ejected: what comes out is plain TRL; use engine trl."
        raise refuse("eject_engine", text, field="engine.name", value=job.engine.name)
    if job.stage.name == "ppo":
        text = (
            "PPO cannot be ejected: its loop is Factory's own, for trl 1.12 has no PPO that resumes; keep the job, or "
            "train with grpo or rloo, which can."
        )
        raise refuse("eject_ppo", text, field="stage.name", value="ppo")
    if job.hardware.sharing != "none":
        text = (
            f"A job for several processes cannot be ejected: what ties them together (hardware.strategy "
            f"{job.hardware.sharing}) is no matter of a short script; take hardware out, or keep the job."
        )
        raise refuse("eject_processes", text, field="hardware.strategy", value=job.hardware.sharing)
    if foreign := eject_rewards.foreign(rewards_of(job)):
        text = (
            f"The reward {foreign[0]} cannot be ejected: it is more than a few functions; rewards that can are "
            f"{', '.join(eject_rewards.REWARDS)}."
        )
        raise refuse("eject_reward", text, field="rewards", value=foreign)


def rewards_of(job: JobSpec) -> list[Any]:
    """The rewards that the stage asks; others of the job say nothing."""
    return list(job.rewards) if job.stage.name in ("grpo", "rloo") else []


def script(job: JobSpec, context: Context, model: Path, *, held_out: bool) -> str:
    """train.py for a resolved job whose rows are ready; `model` is the folder of its base."""
    kind = _Kind.of(job, context)
    about = (
        f'"""{job.stage.name} of {job.model.name} ({job.method.name}). Needs requirements.txt, nothing else.\n\n'
        "The rows are token ids, exactly those that Factory trained on, so the losses are the same. For rows of your\n"
        f'own, {kind.own_rows}\n"""'
    )
    parts = [
        about,
        "\n".join(_imports(job, kind)),
        kind.helpers.replace("TRAINER", kind.trainer),
        _body(job, context, kind, model, held_out),
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


@dataclasses.dataclass
class _Kind:
    """What differs between the stages."""

    trainer: str
    config: str
    module: str
    settings: dict[str, Any]
    helpers: str = ""
    more: str = ""
    """Further arguments of the trainer."""
    own_rows: str = "take the library's trainer in place of Ready."

    @staticmethod
    def of(job: JobSpec, context: Context) -> _Kind:
        from core.training import language_modeling, online, preference

        name: Any = job.stage.name
        stage: Any = job.stage
        if name in ("sft", "pretrain"):
            head = isinstance(getattr(job.method, "target", None), list) and "lm_head" in job.method.target  # type: ignore[attr-defined]
            loss = getattr(stage, "loss", "nll")
            loss = "chunked_nll" if loss == "nll" and not head else loss
            settings = language_modeling.settings_of(context, packing=stage.packing, loss=loss)
            return _Kind("SFTTrainer", "SFTConfig", "trl", settings, own_rows="take out dataset_kwargs.")
        if name == "reward":
            return _Kind("RewardTrainer", "RewardConfig", "trl", preference.reward_settings(context), _READY)
        if name == "dpo" and stage.loss[0] in ("simpo", "cpo"):
            return _odds("CPOTrainer", "CPOConfig", "trl.experimental.cpo", preference.cpo_settings(context))
        if name == "dpo":
            return _Kind("DPOTrainer", "DPOConfig", "trl", preference.dpo_settings(context), _READY)
        if name == "kto":
            return _Kind("KTOTrainer", "KTOConfig", "trl", preference.kto_settings(context), _READY)
        if name == "orpo":
            return _odds(
                "ORPOTrainer", "ORPOConfig", "trl.experimental.orpo", preference.orpo_settings(context)
            )
        settings = online.grpo_settings(context) if name == "grpo" else online.rloo_settings(context)
        names = {"grpo": ("GRPOTrainer", "GRPOConfig"), "rloo": ("RLOOTrainer", "RLOOConfig")}[name]
        more = f"    reward_funcs=[{', '.join(eject_rewards.functions(job.rewards))}],\n"
        return _Kind(*names, "trl", settings, _PROMPTS, more)


def _odds(trainer: str, config: str, module: str, settings: dict[str, Any]) -> _Kind:
    more = "    data_collator=PairCollator(tokenizer.pad_token_id),\n"
    return _Kind(
        trainer,
        config,
        module,
        settings | {"remove_unused_columns": False},
        _READY + "\n\n\n" + _COLLATOR,
        more,
    )


_READY = '''class Ready(TRAINER):
    """The rows are token ids already; for text rows, use TRAINER itself."""

    def _prepare_dataset(self, dataset, *args, **kwargs):
        return dataset'''
_COLLATOR = '''class Rows(Dataset):
    """Rows that TRAINER does not tokenise again."""

    def map(self, *args, **kwargs):
        return self


class PairCollator:
    """Both answers of a pair behind their prompt, padded; only the answers count in the loss."""

    def __init__(self, pad):
        self.pad = pad

    def __call__(self, rows):
        batch = {}
        for side in ("chosen", "rejected"):
            ids = [row["prompt_ids"] + row[f"{side}_ids"] for row in rows]
            labels = [[-100] * len(row["prompt_ids"]) + row[f"{side}_ids"] for row in rows]
            batch[f"{side}_input_ids"] = self.padded(ids, self.pad)
            batch[f"{side}_labels"] = self.padded(labels, -100)
            batch[f"{side}_attention_mask"] = self.padded([[1] * len(one) for one in ids], 0)
        batch["prompt_input_ids"] = self.padded([row["prompt_ids"] for row in rows], self.pad)
        batch["prompt_attention_mask"] = self.padded([[1] * len(row["prompt_ids"]) for row in rows], 0)
        return batch

    @staticmethod
    def padded(rows, value):
        return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)'''
_PROMPTS = '''class Ready(TRAINER):
    """The prompts are token ids already; for text prompts, use TRAINER itself."""

    def _generate_and_score_completions(self, inputs):
        self.ready = [row["input_ids"] for row in inputs]
        columns = [{name: value for name, value in row.items() if name != "input_ids"} for row in inputs]
        return super()._generate_and_score_completions(columns)

    def _tokenize_prompts(self, prompts):
        return self.ready, None, {}'''


def _imports(job: JobSpec, kind: _Kind) -> list[str]:
    auto = "AutoModelForSequenceClassification" if job.stage.name == "reward" else "AutoModelForCausalLM"
    names = sorted(
        [auto, "AutoTokenizer", "set_seed", *(["BitsAndBytesConfig"] if job.method.name == "qlora" else [])]
    )
    odds = "PairCollator" in kind.helpers
    lines = ["import torch", f"from datasets import {'Dataset, ' if odds else ''}load_dataset"]
    if job.method.name in ADAPTERS:
        lines.append(
            "from peft import " + ("PeftModel" if job.model.adapter else "LoraConfig, get_peft_model")
        )
    elif job.model.adapter:
        lines.append("from peft import PeftModel")
    if odds:
        lines.append("from torch.nn.utils.rnn import pad_sequence")
    lines.append(f"from transformers import {', '.join(names)}")
    lines.append(f"from {kind.module} import {kind.config}, {kind.trainer}")
    if rewards := rewards_of(job):
        lines.append(f"\nfrom rewards import {', '.join(eject_rewards.functions(rewards))}")
    if job.stage.name == "reward":
        lines.append("from trl.trainer.reward_trainer import DataCollatorForPreference")
    return lines


def _body(job: JobSpec, context: Context, kind: _Kind, model: Path, held_out: bool) -> str:
    ready = "Ready" if kind.helpers else kind.trainer
    rows = 'load_dataset("json", data_files="{}.jsonl", split="train")'
    wrap = "Rows({}.data)" if "PairCollator" in kind.helpers else "{}"
    lines = [
        f"MODEL = {str(model)!r}",
        "",
        f"set_seed({job.train.seed})",
        "tokenizer = AutoTokenizer.from_pretrained(MODEL)",
        "if tokenizer.pad_token is None:",
        "    tokenizer.pad_token = tokenizer.eos_token",
        *_load(job, context),
        "",
        f"train_rows = {wrap.format(rows.format('train'))}",
        *([f"eval_rows = {wrap.format(rows.format('eval'))}"] if held_out else []),
        f"arguments = {kind.config}(",
        '    output_dir="checkpoints",',
        *(f"    {name}={value!r}," for name, value in _changed(kind, context).items()),
        ")",
        f"trainer = {ready}(",
        "    model=model,",
        "    args=arguments,",
        "    train_dataset=train_rows,",
        *(["    eval_dataset=eval_rows,"] if held_out else []),
        "    processing_class=tokenizer,",
        *kind.more.splitlines(),
        *_stage_arguments(job),
        ")",
        *_afterwards(job),
        "trainer.train()",
        'trainer.save_model("model")',
        'tokenizer.save_pretrained("model")',
    ]
    return "\n".join(lines)


def _stage_arguments(job: JobSpec) -> list[str]:
    stage: Any = job.stage
    if stage.name == "reward":
        return ["    data_collator=DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id),"]
    whole = job.method.name not in ADAPTERS
    if (
        stage.name in ("dpo", "kto")
        and whole
        and getattr(stage, "reference", "auto") == "auto"
        and not _alone(stage)
    ):
        return ["    ref_model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),"]
    return []


def _alone(stage: Any) -> bool:
    return stage.name == "dpo" and stage.loss[0] in ("simpo", "cpo")


def _afterwards(job: JobSpec) -> list[str]:
    if "simpo" in (loss := getattr(job.stage, "loss", [])) or "cpo" in loss or job.stage.name == "orpo":
        return ["trainer.use_dpo_data_collator = True  # the collator above makes the same batches"]
    if (
        job.method.name in ADAPTERS
        and not job.model.adapter
        and job.stage.name in ("dpo", "kto", "grpo", "rloo")
    ):
        return [
            'if "ref" in trainer.model.peft_config:',
            '    trainer.model.delete_adapter("ref")  # without its adapter, the model is the reference',
        ]
    return []


def _load(job: JobSpec, context: Context) -> list[str]:
    method: Any = job.method
    auto = "AutoModelForSequenceClassification" if job.stage.name == "reward" else "AutoModelForCausalLM"
    half = method.name != "full" and context.gpu
    more = ", num_labels=1" if job.stage.name == "reward" else ""
    if job.model.attention != "auto":
        more += f", attn_implementation={job.model.attention!r}"
    lines = []
    if method.name == "qlora":
        lines += ["held = BitsAndBytesConfig("]
        if method.bits == "int8":
            lines += ["    load_in_8bit=True,"]
        else:
            compute = "bfloat16" if context.gpu else "float32"
            lines += [
                "    load_in_4bit=True,",
                '    bnb_4bit_quant_type="nf4",',
                f"    bnb_4bit_use_double_quant={method.double_quant},",
                f"    bnb_4bit_compute_dtype=torch.{compute},",
            ]
        lines += [")"]
        more += ", quantization_config=held"
    dtype = "torch.bfloat16" if half else "torch.float32"
    lines += [
        f"model = {auto}.from_pretrained(MODEL, dtype={dtype}{more})",
        "model.config.pad_token_id = tokenizer.pad_token_id",
    ]
    return lines + _learners(job)


def _learners(job: JobSpec) -> list[str]:
    method: Any = job.method
    if job.model.adapter:
        if method.name in ADAPTERS:
            return [f"model = PeftModel.from_pretrained(model, {job.model.adapter!r}, is_trainable=True)"]
        return [f"model = PeftModel.from_pretrained(model, {job.model.adapter!r}).merge_and_unload()"]
    if method.name in ADAPTERS:
        options = {
            "task_type": "SEQ_CLS" if job.stage.name == "reward" else "CAUSAL_LM",
            "r": method.rank,
            "lora_alpha": method.alpha,
            "lora_dropout": method.dropout,
            "target_modules": method.target,
            "modules_to_save": method.modules_to_save or None,
            "use_rslora": method.rslora or None,
            "use_dora": method.dora or None,
            "init_lora_weights": None if method.init == "default" else method.init,
        }
        inner = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
        seed = f"torch.manual_seed({job.train.seed})  # of the adapter's first values"
        return [seed, f"model = get_peft_model(model, LoraConfig({inner}))"]
    if method.name == "freeze":
        heads = [*method.modules, *(["score"] if job.stage.name == "reward" else [])]
        return [
            "model.requires_grad_(False)",
            "blocks = max((one for one in model.modules() if isinstance(one, torch.nn.ModuleList)), key=len)",
            f"for block in list(blocks)[len(blocks) - {method.layers} :]:",
            "    block.requires_grad_(True)",
            "for name, module in model.named_modules():",
            f"    if any(name == one or name.endswith('.' + one) for one in {heads!r}):",
            "        module.requires_grad_(True)",
        ]
    return []


def _changed(kind: _Kind, context: Context) -> dict[str, Any]:
    """The settings that are not the config's own default anyway, in the config's order."""
    config = _config_class(kind)
    defaults = {field.name: _default(field) for field in dataclasses.fields(config)}
    kept = {}
    for name, value in kind.settings.items():
        if name in DROPPED or (
            name in defaults and defaults[name] == value and type(defaults[name]) is type(value)
        ):
            continue
        kept[name] = value
    return {**kept, "report_to": "none"}


def _default(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _config_class(kind: _Kind) -> Any:
    import importlib

    return getattr(importlib.import_module(kind.module), kind.config)
