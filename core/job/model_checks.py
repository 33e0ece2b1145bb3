"""What is wrong inside a model's folder, told before anything starts and without torch: numbers, family, tokenizer,
chat template, and names of modules that the job asks for."""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.job.case import Case, find
from core.job.models import read_config, tensor_sizes
from core.job.remembered import remembered
from data.errors import FactoryError, Finding
from data.userpath import user_path

COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
"""Fields of config.json that are whole numbers from 1 in every family that has them."""
PLAIN_FAMILIES = frozenset(
    "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi3 smollm3 olmo2 granite".split()
)
"""Families whose weights are called as their modules are; others are renamed while they load."""
_ENTRY = re.compile(r'"([A-Za-z0-9_.-]+)"[,:] "[A-Za-z0-9_]+Config"')
ALWAYS = ("lm_head", "score")
"""Heads that need not stand in the files: shared with the embedding, or new."""


def model_findings(case: Case) -> Iterator[Finding]:
    """All of them; none when the model's files are not here, and what cannot be read is a finding already."""
    folder = case.model.folder if case.model is not None else None
    if folder is not None:
        try:
            config = read_config(folder)
        except FactoryError:
            return
        yield from _numbers(case, config)
        yield from _family(case, config)
        yield from _tokenizer(case, folder)
    yield from _templates(case, folder)
    yield from _modules(case, folder)


def _numbers(case: Case, config: dict[str, Any]) -> Iterator[Finding]:
    name = case.job.model.name
    for field in COUNTS:
        value = config.get(field, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            text = (
                f"config.json of model {name!r} has {field} = {json.dumps(value)[:60]}, which is no whole number "
                "from 1; copy the model again."
            )
            yield find("model_config_broken", "error", "model.name", name, text)


def _family(case: Case, config: dict[str, Any]) -> Iterator[Finding]:
    name, family = case.job.model.name, config.get("model_type")
    if family is None:
        text = f"config.json of model {name!r} does not say its model_type; copy the model again."
        yield find("model_type_unknown", "error", "model.name", name, text)
        return
    known = _families()
    if not known or family in known:
        return
    near = difflib.get_close_matches(str(family), known, n=1)
    hint = f" (the nearest it knows is {near[0]})" if near else ""
    text = (
        f"model {name!r} is of the family {family!r}, which the installed transformers does not know{hint}; "
        "use another model."
    )
    yield find("model_type_unknown", "error", "model.name", name, text)


def _families() -> list[str]:
    """The families of the installed transformers, read from its tables without importing it; empty without them.

    transformers 5.17 keeps them in models/auto/auto_mappings.py and configuration_auto.py.
    """
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return []
    tables = [
        Path(package.origin).parent / "models" / "auto" / name
        for name in ("auto_mappings.py", "configuration_auto.py")
    ]
    return sorted(
        {name for path in tables if path.is_file() for name in _ENTRY.findall(path.read_text("utf-8"))}
    )


def _tokenizer(case: Case, folder: Path) -> Iterator[Finding]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    problem = remembered(case.home, ["tokenizer.json"], [path], lambda: _why_broken(path))
    if problem:
        text = f"{str(path)!r} is no tokenizer ({problem}); copy the model's tokenizer again."
        yield find("tokenizer_broken", "error", "model.name", case.job.model.name, text)


def _why_broken(path: Path) -> str | None:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        return str(problem)[:120]
    if not isinstance(value, dict) or not isinstance(value.get("model"), dict):
        return "it has no model"
    return None


def _templates(case: Case, folder: Path | None) -> Iterator[Finding]:
    """The template of the job where it is a file, else the one in the model's folder: does it compile?"""
    wanted = case.job.model.template
    path = folder / "chat_template.jinja" if wanted is None and folder is not None else Path(wanted or "")
    if path.suffix != ".jinja" or not user_path(path).is_file():
        return
    for plain in remembered(case.home, ["chat template"], [user_path(path)], lambda: _why_no_template(path)):
        yield Finding(**plain)


def _why_no_template(path: Path) -> list[dict[str, Any]]:
    from data.template import (
        Template,
    )  # jinja2 is loaded only for a template that is a file, and once for each

    try:
        Template(user_path(path).read_text("utf-8", "replace"), {})
    except FactoryError as error:
        return [
            replace(
                one, value=str(path), message=one.message.replace("The chat", f"{path}: the chat", 1)
            ).to_json()
            for one in error.findings
        ]
    return []


def _modules(case: Case, folder: Path | None) -> Iterator[Finding]:
    """Names in method.target and method.modules_to_save that no module of the model ends with."""
    method: Any = case.job.method
    asked = [
        (field, name)
        for field in ("target", "modules_to_save")
        for name in getattr(method, field, None) or []
        if isinstance(getattr(method, field), list) and name not in ALWAYS
    ]
    if not asked:
        return
    known = _module_names(case, folder)
    if not known:
        return
    linear = sorted(known["linear"])
    for field, name in asked:
        if name.rsplit(".", 1)[-1] in known["all"]:
            continue
        near = difflib.get_close_matches(name, sorted(known["all"]), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        yield Finding(
            "module_not_found",
            f"method.{field} names {name!r}, which this model does not have{hint}; its linear modules are "
            f"{', '.join(linear)}.",
            "error",
            f"method.{field}",
            name,
            {"linear": linear},
        )


def _module_names(case: Case, folder: Path | None) -> dict[str, set[str]]:
    """Last name parts of modules, and of the linear ones; empty where the files do not tell for sure."""
    if folder is None:
        if case.model is None or case.model.kind != "embedded" or case.shape is None:
            return {}
        linear = {one[0] for one in case.shape.linears}
        return {"linear": linear, "all": linear | {"embed_tokens", "norm", "mlp", "self_attn"}}
    try:
        sizes = tensor_sizes(folder)
        family = read_config(folder).get("model_type")
    except FactoryError:
        return {}
    if family not in PLAIN_FAMILIES:
        return {}
    weights = {name.removesuffix(".weight"): size for name, size in sizes.items() if name.endswith(".weight")}
    linear = {name.rsplit(".", 1)[-1] for name, size in weights.items() if len(size) == 2} - {"embed_tokens"}
    return {"linear": linear, "all": {part for name in weights for part in name.split(".")}}
