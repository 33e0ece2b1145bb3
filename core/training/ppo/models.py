"""The models beside the policy: the value model, and whether a reward model may read the policy's token ids."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from core.job.spec import JobSpec
from core.rewards import NamedScorer
from core.rewards.model import ModelScorer, check_reward_model, find_model
from core.stages import ppo
from core.training.context import Context
from core.training.model import model_folder
from data.errors import Finding, refuse


def tokenizer_findings(job: JobSpec, home: Path, tokenizer: Any) -> list[Finding]:
    """A finding for every reward or value model that does not read the policy's token ids.

    Raises FactoryError when one of them is not there or is no classifier with one label.
    """
    assert isinstance(job.stage, ppo.Spec)
    named = [
        (f"rewards[{place}].source", "the reward model", reward.source)
        for place, reward in enumerate(job.rewards)
        if reward.name == "model" and hasattr(reward, "source")
    ]
    named += [("stage.value", "the value model", job.stage.value)] if job.stage.value else []
    found = []
    for field, what, source in named:
        folder = find_model(source, home)
        check_reward_model(folder, source)
        difference = _difference(tokenizer, folder)
        if difference:
            text = (
                f"{what} {source!r} has another tokenizer than the policy: {difference}; stage ppo hands it the "
                "policy's token ids, so train it from the policy's own model."
            )
            found.append(Finding("tokenizers_differ", text, "error", field, source))
    return found


def _difference(tokenizer: Any, folder: Path) -> str | None:
    """How the tokenizer in a folder differs from the policy's, in numbers; None when it gives the same ids."""
    other = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    ours, theirs = tokenizer.get_vocab(), other.get_vocab()
    if ours == theirs:
        return None
    same = sum(theirs.get(token) == place for token, place in ours.items())
    return f"it has {len(theirs):,} tokens, the policy's has {len(ours):,}, and {same:,} of them have the same id"


def value_model(context: Context, scorers: Sequence[NamedScorer]) -> Any:
    """The classifier that values states, fp32 and trainable, on the policy's device.

    It starts from stage.value, else from the first reward model, else from the policy's weights with a new head
    drawn from the job's seed. Raises FactoryError when it cannot be loaded.
    """
    spec, home = context.job.stage, context.home
    assert isinstance(spec, ppo.Spec)
    folder = find_model(spec.value, home) if spec.value else _first_reward_model(scorers)
    torch.manual_seed(context.job.train.seed)
    model = _classifier(folder or model_folder(context.job.model, home), spec.value or "made from the policy")
    model.config.pad_token_id = context.tokenizer.pad_token_id
    model.config.use_cache = False
    return model.requires_grad_(True)


def _first_reward_model(scorers: Sequence[NamedScorer]) -> Path | None:
    return next((one.scorer.parts()[1] for one in scorers if isinstance(one.scorer, ModelScorer)), None)


def _classifier(folder: Path, source: str) -> Any:
    """A classifier with one label in fp32; an adapter is merged into its base."""
    config = folder / "adapter_config.json"
    base = (
        Path(json.loads(config.read_text("utf-8"))["base_model_name_or_path"]) if config.is_file() else folder
    )
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            base,
            num_labels=1,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
        )
        if config.is_file():
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, folder, use_safetensors=True).merge_and_unload()
    except (OSError, ValueError, KeyError, ImportError) as problem:
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]
        raise refuse(
            "value_model_broken",
            f"the value model ({source}) cannot be loaded ({first}); see log.txt for the details.",
            field="stage.value",
            value=source,
        ) from problem
    if not hasattr(model, "score"):
        raise refuse(
            "value_model_wrong",
            f"the value model ({source}) is a {type(model).__name__}, whose head cannot value every state; take one "
            "of the Llama, Qwen, Mistral, Gemma or Phi kind.",
            field="stage.value",
            value=source,
        )
    return model


def reference_model(context: Context) -> Any | None:
    """The policy as it was before training, frozen; None where switching a fresh adapter off gives just that."""
    if context.fresh_adapter:
        return None
    if context.job.model.adapter:
        return copy.deepcopy(context.model).requires_grad_(False)  # with the adapter that was trained before
    return context.frozen_copy()


def without_dropout(models: Sequence[Any]) -> int:
    """Set every dropout of the models to 0 (a ratio of new to old policy must not be noise); how many were above."""
    found = [
        module
        for model in models
        for module in model.modules()
        if isinstance(module, torch.nn.Dropout) and module.p > 0
    ]
    for module in found:
        module.p = 0.0
    return len(found)
