"""A checkpoint from which a run goes on as if it had never been stopped: weights, optimizer, order of rows, chance.

checkpoint-N/  the policy as save_pretrained writes it, with the tokenizer
    value/     the value model, likewise
    optimizer.pt, scheduler.pt, rng_state.pth, trainer_state.json
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from core.training.saving import has_other_names, read_weights


def save(
    folder: Path, *, policy: Any, value: Any, tokenizer: Any, optimizer: Any, scheduler: Any, state: Any
) -> None:
    """Write everything but chance, which `save_chance` adds. Whole only when the run's callback has committed it."""
    folder.mkdir(parents=True, exist_ok=True)
    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    value.save_pretrained(folder / "value")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save(scheduler.state_dict(), folder / "scheduler.pt")
    state.save_to_json(str(folder / "trainer_state.json"))


def load(folder: Path, *, policy: Any, value: Any, optimizer: Any, scheduler: Any) -> None:
    """Put weights and optimizer back in place."""
    load_policy(folder, policy)
    _load_weights(folder / "value", value)
    optimizer.load_state_dict(_read(folder / "optimizer.pt"))
    scheduler.load_state_dict(_read(folder / "scheduler.pt"))


def load_policy(folder: Path, policy: Any) -> None:
    """The policy's weights, or its adapter's."""
    if not hasattr(policy, "peft_config"):
        _load_weights(folder, policy)
        return
    from peft import set_peft_model_state_dict

    outcome = set_peft_model_state_dict(policy, _tensors(folder))
    lacking = [
        name for name, one in policy.named_parameters() if one.requires_grad and name in outcome.missing_keys
    ]
    _complete(folder, lacking, outcome.unexpected_keys)


def _load_weights(folder: Path, model: Any) -> None:
    tensors = read_weights(model, folder) if has_other_names(model, folder) else _tensors(folder)
    outcome = model.load_state_dict(tensors, strict=False)
    tied = set(model.all_tied_weights_keys)
    _complete(folder, [name for name in outcome.missing_keys if name not in tied], outcome.unexpected_keys)


def _complete(folder: Path, lacking: list[str], unknown: list[str]) -> None:
    if lacking or unknown:
        raise RuntimeError(
            f"{folder} is another model's checkpoint: it lacks {lacking} and has {unknown} besides"
        )


def _tensors(folder: Path) -> dict[str, Any]:
    return {
        name: one for file in sorted(folder.glob("*.safetensors")) for name, one in load_file(file).items()
    }


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def save_chance(folder: Path, shuffle: np.random.RandomState, prompts: Any) -> None:
    """Every source of chance: Python's, numpy's, torch's on each device, the mini-batches' and the prompts' order."""
    chance = {
        "python": random.getstate(),
        "numpy": _plain(np.random.mtrand._rand),
        "shuffle": _plain(shuffle),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "prompts": prompts.state(),
    }
    torch.save(chance, folder / "rng_state.pth")


def load_chance(folder: Path, shuffle: np.random.RandomState, prompts: Any) -> None:
    """Put chance back where `save_chance` found it; last of all, since loading draws from it."""
    chance = _read(folder / "rng_state.pth")
    prompts.restore(chance["prompts"])
    random.setstate(chance["python"])
    np.random.mtrand._rand.set_state(_numpy(chance["numpy"]))
    shuffle.set_state(_numpy(chance["shuffle"]))
    torch.set_rng_state(chance["torch"])
    if chance["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(chance["cuda"])


def _plain(source: np.random.RandomState) -> tuple[Any, ...]:
    """The state of a numpy generator without numpy in it: torch.load takes plain tensors and numbers only."""
    kind, keys, *rest = source.get_state(legacy=True)
    return (kind, torch.from_numpy(np.asarray(keys, np.int64)), *rest)


def _numpy(plain: tuple[Any, ...]) -> tuple[Any, ...]:
    kind, keys, *rest = plain
    return (kind, keys.numpy().astype(np.uint32), *rest)
