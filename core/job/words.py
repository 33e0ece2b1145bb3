"""Every error of a job in a sentence of ours: the field, the value, what is allowed, what was meant."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.job.reading import FieldPath, Reading, dotted, plain_value
from core.job.schema import Schema, all_fields, allowed, alternatives, names_of, node_at, objects, value_at
from data.errors import Finding

OTHER_NAMES = {
    "model_name_or_path": "model",
    "base_model": "model",
    "model_id": "model",
    "dataset": "data",
    "datasets": "data",
    "dataset_name": "data",
    "train_file": "data",
    "finetuning_type": "method",
    "adapter": "method",
    "lora_r": "method.rank",
    "lora_rank": "method.rank",
    "r": "method.rank",
    "lora_alpha": "method.alpha",
    "lora_dropout": "method.dropout",
    "lora_target": "method.target",
    "target_modules": "method.target",
    "num_train_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "per_device_train_batch_size": "train.batch_size",
    "micro_batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.gradient_accumulation",
    "train_batch_size": "train.global_batch_size",
    "lr": "train.learning_rate",
    "lr_scheduler": "train.scheduler",
    "lr_scheduler_type": "train.scheduler",
    "warmup_ratio": "train.warmup",
    "warmup_steps": "train.warmup",
    "optim": "train.optimizer",
    "save_total_limit": "train.keep_checkpoints",
    "load_best_model_at_end": "train.keep_best",
    "cutoff_len": "stage.max_length",
    "max_seq_length": "stage.max_length",
    "max_seq_len": "stage.max_length",
    "sequence_len": "stage.max_length",
    "val_size": "data.eval",
    "val_set_size": "data.eval",
    "bf16": "hardware.precision",
    "fp16": "hardware.precision",
    "attn_implementation": "model.attention",
    "flash_attn": "model.attention",
    "chat_template": "model.template",
}
"""What other trainers call our fields: only hints in a refusal, never accepted in their place."""

REFUSED_ON_PURPOSE = {
    "trust_remote_code": "code that comes with a model is never run; use a model that transformers knows",
    "resume_from_checkpoint": "a run goes on from its own checkpoints: factory resume ID",
    "output_dir": "a run gets its own folder under the home folder: choose that with --home",
}
MOST = 50
"""So many findings are enough to see that this is no job; more would only take time."""
LONG = 60
"""Characters from which on a text is counted for its reader, who cannot see how long it is."""
EXAMPLES = {"model": "smollm2-135m", "data": "rows.jsonl", "stage": "sft"}
_SECRET_KEY = re.compile(r"(token|api_?key|password|secret)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_|gho_|wandb_)[A-Za-z0-9_-]{8,}")


def findings_of(error: ValidationError, reading: Reading, origin: str) -> list[Finding]:
    """Every error of a validation as one finding per field, in the order of the spec."""
    by_path: dict[FieldPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(_real_path(detail, reading.value), []).append(detail)
    # A value that could not be read stands as empty: what pydantic says about that is no news.
    told = {finding.field for finding in reading.findings if finding.code != "duplicate_key"}
    # Of `a number or a list of numbers`, a list with a wrong entry is wrong at that entry, not for being no number.
    told |= {dotted(path[:-1]) for path in by_path if path and isinstance(path[-1], int)}
    wrong = [(path, details) for path, details in by_path.items() if dotted(path) not in told]
    findings = _without_twins([_finding(path, details, reading, origin) for path, details in wrong[:MOST]])
    if len(wrong) > MOST:
        more = len(wrong) - MOST
        findings.append(
            Finding("more_findings", f"{more:,} more fields are wrong; mend these first.", value=more)
        )
    return findings


def _without_twins(findings: list[Finding]) -> list[Finding]:
    """The findings but those that miss a field which another one found under a wrong name."""
    meant = {one.params.get("nearest") for one in findings if one.code == "unknown_field"}
    return [one for one in findings if one.code != "missing_field" or one.field not in meant]


def _real_path(detail: ErrorDetails, value: Any) -> FieldPath:
    """pydantic's location without the names of union members: only what stands in the job."""
    loc = detail["loc"]
    path: FieldPath = ()
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(value, dict) and part in value:
            path, value = (*path, part), value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path, value = (*path, part), value[part]
        elif isinstance(value, dict) and last and detail["type"] == "missing":
            path = (*path, part)
    return (*path, "name") if detail["type"] == "union_tag_not_found" else path


def _finding(path: FieldPath, details: list[ErrorDetails], reading: Reading, origin: str) -> Finding:
    # Of a union's errors the one about a bound says more than the ones about types that were never meant.
    detail = min(details, key=lambda one: one["type"].endswith(("_type", "literal_error")))
    where, params = _where(path, reading, origin)
    name, kind = dotted(path), detail["type"]
    if kind == "extra_forbidden":
        return _unknown(path, reading.value, where, params)
    node = node_at(path, reading.value)
    can_be = allowed(node) if node is not None else ""
    if (
        can_be == "any value"
    ):  # which nothing would break: it is an entry of the shorthand `data: [path, path]`
        can_be = "text or a group of settings"
    if kind in ("missing", "union_tag_not_found"):
        example = f", such as {name}: {EXAMPLES[name]}" if name in EXAMPLES else f": {can_be}"
        message = f"{name} is missing; add it{example}{where}."
        return Finding("missing_field", message, field=name, params={**params, "allowed": can_be})
    value = value_at(reading.value, path)
    if kind in ("value_error", "assertion_error") or node is None:
        message = detail["msg"].removeprefix("Value error, ").removesuffix(".")
        subject = "" if not name or message.startswith(name) else f"{name}: "
        return Finding(
            "invalid_value", f"{subject}{message}{where}.", field=name or None, value=value, params=params
        )
    said = _wrong_length(detail, value) or f"must be {can_be}; got {shown(value)}{_hint(node, value)}"
    message = f"{name} {said}{where}."
    params["allowed"] = can_be
    return Finding(_code(kind), message, field=name, value=_harmless(value), params=params)


def _wrong_length(detail: ErrorDetails, value: Any) -> str | None:
    """What to say of a text that is empty or too long, which is text all the same."""
    most = (detail.get("ctx") or {}).get("max_length", 0)
    if detail["type"] == "string_too_short" and value == "":
        return "must not be empty"
    if detail["type"] == "string_too_long" and isinstance(value, str) and len(value) > LONG:
        return f"is too long: {len(value):,} characters, and at most {most:,} are taken"
    return None


def _where(path: FieldPath, reading: Reading, origin: str) -> tuple[str, dict[str, Any]]:
    """Where a field was said, for a sentence and for scripts."""
    if reading.is_overridden(path):
        return f" (-o {dotted(path)})", {"origin": "-o"}
    at = reading.place(path)
    if at is None:
        return f" ({origin})", {"origin": origin}
    return f" ({origin}, {at})", {"origin": origin, "line": at.line, "column": at.column}


def _code(kind: str) -> str:
    if kind.startswith(("greater_than", "less_than")):
        return "out_of_range"
    if kind in ("literal_error", "union_tag_invalid", "enum"):
        return "not_allowed"
    if kind.endswith("_type"):
        return "wrong_type"
    return "invalid_value"


def _unknown(path: FieldPath, job: Any, where: str, params: dict[str, Any]) -> Finding:
    name, key = dotted(path), str(path[-1])
    advice, nearest = _advice(path, key, job)
    # The value is not repeated: a token under a wrong key must not travel on into logs and answers.
    return Finding(
        "unknown_field",
        f"{name} is not a field of a job{advice}{where}.",
        field=name,
        params={**params, "nearest": nearest},
    )


def _advice(path: FieldPath, key: str, job: Any) -> tuple[str, str | None]:
    if key in REFUSED_ON_PURPOSE:
        return f": {REFUSED_ON_PURPOSE[key]}", None
    if _SECRET_KEY.search(key):
        return ": a job holds no secrets; set them as environment variables", None
    nearest = _nearest(path, key, job)
    if nearest:
        return f"; did you mean {nearest}?", nearest
    home = node_at(path[:-1], job)
    names = [key for one in objects(home or {}, value_at(job, path[:-1])) for key in one["properties"]]
    return f"; known here are {', '.join(dict.fromkeys(names))}", None


def _nearest(path: FieldPath, key: str, job: Any) -> str | None:
    """The field that was probably meant: a like name beside it, a foreign name, a like name anywhere."""
    home = node_at(path[:-1], job)
    names = [name for one in objects(home or {}, value_at(job, path[:-1])) for name in one["properties"]]
    close = difflib.get_close_matches(key.lower().replace("-", "_"), names, n=1, cutoff=0.7)
    if close:
        return dotted((*path[:-1], close[0]))
    longer = [name for name in names if key in name.split("_")]
    if len(longer) == 1 and len(path) > 1:
        return dotted((*path[:-1], longer[0]))
    if key in OTHER_NAMES:
        return _in_this_stage(OTHER_NAMES[key], job)
    leaves = {name.rsplit(".", 1)[-1]: name for name in reversed(all_fields())}
    close = difflib.get_close_matches(key, leaves, n=1, cutoff=0.8)
    return leaves[close[0]] if close else None


def _in_this_stage(name: str, job: Any) -> str:
    """The same field as the job's stage calls it: where answers are sampled, the limit is that of the prompt."""
    if name == "stage.max_length" and node_at(("stage", "max_length"), job) is None:
        return "stage.max_prompt_length"
    return name


def _hint(node: Schema, value: Any) -> str:
    kinds = {one.get("type") for one in alternatives(node)}
    if isinstance(value, str):
        if "boolean" in kinds and value.lower() in ("yes", "no", "on", "off"):
            return ": write true or false, YAML 1.2 reads yes, no, on and off as text"
        number, problem = plain_value(value.replace("_", "").replace(",", ""))
        if kinds & {"integer", "number"} and not problem and isinstance(number, (int, float)):
            return f": write {number} without quotes or separators"
        close = difflib.get_close_matches(value.lower(), names_of(node), n=1, cutoff=0.6)
        return f"; did you mean {close[0]}?" if close else ""
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        return f": write {int(value)}"
    return ""


def shown(value: Any, limit: int = LONG) -> str:
    """A value as it is repeated in a sentence: as JSON, short, and without what looks like a secret."""
    if value is None:
        return "nothing"
    text = _SECRET_VALUE.sub(r"\1…", json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _harmless(value: Any) -> Any:
    """The value for scripts, where it is small and holds no secret."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= 1000 and not _SECRET_VALUE.search(text) else shown(value)
