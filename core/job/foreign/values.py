"""What kind of value each key of LLaMA-Factory takes, so that a wrong one is told instead of guessed at."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data.errors import FactoryError, Finding
from data.userpath import user_path

_WHOLE = """lora_rank lora_alpha max_samples max_steps quantization_bit freeze_trainable_layers cutoff_len
    max_new_tokens seed per_device_train_batch_size gradient_accumulation_steps save_total_limit early_stopping_steps
    ppo_epochs"""
_NUMBER = """pref_ftx val_size warmup_ratio warmup_steps learning_rate num_train_epochs weight_decay max_grad_norm
    neftune_noise_alpha logging_steps save_steps eval_steps lora_dropout pref_beta dpo_label_smoothing simpo_gamma
    kto_chosen_weight kto_rejected_weight temperature export_size"""
_SWITCH = """use_rslora use_dora ppo_whiten_rewards train_on_prompt mask_history packing neat_packing use_dft_loss
    double_quantization pissa_init bf16 pure_bf16 fp16 gradient_checkpointing disable_gradient_checkpointing use_badam
    use_galore use_apollo galore_layerwise apollo_layerwise use_swanlab load_best_model_at_end
    use_unsloth use_unsloth_gc"""
_TEXT = """model_name_or_path stage pref_loss model_revision flash_attn template finetuning_type quantization_type
    quantization_method dataset_dir mix_strategy reward_model reward_model_type export_dir lr_scheduler_type optim
    run_name"""
_NAMES = """dataset eval_dataset adapter_name_or_path lora_target additional_target freeze_extra_modules
    freeze_trainable_modules report_to"""


def settled(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The values as their keys take them, nulls left out, and a finding for each value that its key does not take.

    Numbers may stand as text (YAML 1.1 reads 1e-4 so), whole ones as 8.0; a name may be a number.
    """
    good: dict[str, Any] = {}
    findings: list[Finding] = []
    for key, value in values.items():
        if value is None:  # there as here, null is a key that is left out
            continue
        words, turn = _KINDS.get(key, ("", lambda same: same))
        try:
            good[key] = turn(value)
        except (TypeError, ValueError, OverflowError):
            text = f"{key} takes {words}; got {_shown(value)}."
            findings.append(Finding("foreign_value", text, field=key, value=_shown(value)))
    return good, findings


def settle(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as their keys take them. Raises FactoryError with every one that its key does not take."""
    good, findings = settled(values)
    if findings:
        raise FactoryError(findings)
    return good


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    made = float(value)
    if not math.isfinite(made):
        raise ValueError
    return value if isinstance(value, int) else made


def _whole(value: Any) -> int:
    made = _number(value)
    if made != int(made):
        raise ValueError
    return int(made)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool | int) or value not in (0, 1):
        raise TypeError
    return bool(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return str(value)


def _names(value: Any) -> str | list[str]:
    return [_text(one) for one in value] if isinstance(value, list) else _text(value)


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    key: (words, turn)
    for keys, words, turn in (
        (_WHOLE, "a whole number", _whole),
        (_NUMBER, "a number", _number),
        (_SWITCH, "true or false", _switch),
        (_TEXT, "a text", _text),
        (_NAMES, "names, as a list or with commas between them", _names),
    )
    for key in keys.split()
}


def names_in(text: Any) -> list[str]:
    """The names in a list, or in a text with commas between them."""
    parts = text if isinstance(text, list) else str(text).split(",")
    return [str(part).strip() for part in parts if str(part).strip()]


def meant_from(name: str, folder: Path, *, always: bool = False) -> str:
    """A path as it is meant from the foreign file; a hub id stays as it is."""
    here = folder / user_path(name)
    try:
        there = here.exists()
    except OSError:  # too long for a path
        there = False
    return str(here) if always or there else name
