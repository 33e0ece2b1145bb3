"""Continued pretraining through the real worker."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cpu.conftest import write_rows
from tests.zygote import Zygote

SENTENCES = (
    "the tide comes in at noon",
    "the boats go out at dawn",
    "the light turns all night",
    "gulls wait on the quay",
)


def texts(count: int) -> list[dict[str, Any]]:
    """Documents of one to four sentences in a fixed order."""
    return [{"text": ". ".join(SENTENCES[(n + k) % 4] for k in range(1 + n % 4)) + "."} for n in range(count)]


def job(model: str, data: Any, **parts: Any) -> dict[str, Any]:
    """A small pretraining job."""
    train = {
        "batch_size": 4,
        "gradient_accumulation": 1,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "warmup": 0.0,
        "save_steps": 1000,
    }
    return {
        "model": model,
        "data": data,
        "stage": {"name": "pretrain", "max_length": 64},
        "method": "full",
        "evaluate": {"prompts": ["the tide"], "max_new_tokens": 4},
        **parts,
        "train": train | {"scheduler": "linear", "logging_steps": 1} | parts.get("train", {}),
    }


@pytest.mark.parametrize("method", ["full", "lora"])
def test_losses_equal_those_of_a_hand_written_trl_script(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, method: str
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", texts(40))
    stage = {"name": "pretrain", "max_length": 256, "packing": False}
    spec = {"name": "lora", "rank": 8, "alpha": 16} if method == "lora" else "full"
    ours = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, stage=stage, method=spec), home=str(home))
    assert ours["code"] == 0
    theirs = zygote.call(
        "tests.cpu.jobs:plain_trl_sft",
        model=tiny,
        rows=texts(40),
        out=str(tmp_path / "trl"),
        settings={
            "per_device_train_batch_size": 4,
            "max_steps": 6,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "linear",
            "warmup_steps": 0,
            "max_length": 256,
        },
        lora={"r": 8, "lora_alpha": 16, "lora_dropout": 0.0} if method == "lora" else None,
    )
    assert list(ours["losses"].values()) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("rate", "learns"), [(1e-2, True), (0.0, False)])
def test_held_out_loss_falls_under_the_unigram_entropy(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, rate: float, learns: bool
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", texts(60))
    held_out = write_rows(tmp_path / "eval.jsonl", texts(63)[60:])
    spec = job(
        tiny,
        {"path": data, "eval": held_out},
        train={"max_steps": 40, "learning_rate": rate, "eval_steps": 40},
    )
    done = zygote.call("tests.cpu.jobs:train", job=spec, home=str(home))
    assert done["code"] == 0
    entropy = zygote.call("tests.cpu.test_pretrain:unigram_entropy", model=tiny, rows=texts(63)[60:])
    assert (done["eval_losses"]["40"] < entropy) is learns


def unigram_entropy(model: str, rows: list[dict[str, Any]]) -> float:
    """Entropy in nats of single tokens drawn from the rows, ends of text included."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokens = Counter(
        token for row in rows for token in [*tokenizer(row["text"]).input_ids, tokenizer.eos_token_id]
    )
    total = sum(tokens.values())
    return -sum(n / total * math.log(n / total) for n in tokens.values())
