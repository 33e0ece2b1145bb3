"""Reports of trouble with hyperparameters that show only in training, by their case number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_preference
from tests.cpu.conftest import chats, write_rows


def job(
    tiny: str, tmp_path: Any, count: int, *, data: dict[str, Any], stage: Any = "sft", **train: Any
) -> dict[str, Any]:
    path = write_rows(tmp_path / "rows.jsonl", chats(count))
    return {
        "model": tiny,
        "data": {"path": path, **data},
        "stage": stage,
        "train": {"batch_size": 2, "gradient_accumulation": 1, **train},
        "evaluate": {"prompts": ["Hello"], "max_new_tokens": 1},
    }


def test_062_best_never_saved(zygote, tiny, home, tmp_path):
    wanted = job(
        tiny, tmp_path, 16, data={"eval": 0.25}, max_steps=4, save_steps=500, eval_steps=500, keep_best=True
    )
    done = zygote.call("tests.cpu.jobs:train", job=wanted, home=str(home))
    assert done["code"] == 0 and list(done["eval_losses"]) == ["4"]
    assert [event["step"] for event in done["events"] if event["event"] == "checkpoint"] == [4]


def test_069_val_split_too_small(zygote, tiny, home, tmp_path):
    stage = {"name": "sft", "packing": True, "max_length": 512}
    wanted = job(tiny, tmp_path, 12, data={"eval": 0.05}, stage=stage, max_steps=2)
    done = zygote.call("tests.cpu.jobs:train", job=wanted, home=str(home))
    assert done["code"] == 0 and done["eval_losses"]


def test_072_last_partial_accumulation(zygote, tiny, home, tmp_path):
    wanted = job(tiny, tmp_path, 0, data={}, batch_size=1, gradient_accumulation=2, learning_rate=0.0)
    wanted["train"] |= {"epochs": 1.0, "logging_steps": 1}
    same = [{"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "One."}]}] * 3
    write_rows(tmp_path / "rows.jsonl", same)
    done = zygote.call("tests.cpu.jobs:train", job=wanted, home=str(home))
    first, last = done["losses"].values()
    assert last == pytest.approx(first, rel=1e-5)


def test_086_target_other_arch(zygote, home, tmp_path):
    model = zygote.call("tests.tiny:save_tiny_kind_at", folder=str(tmp_path / "gpt2"), kind="GPT2")
    wanted = {**job(model, tmp_path, 8, data={}, max_steps=2), "method": "lora"}
    done = zygote.call("tests.cpu.jobs:train", job=wanted, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    told = json.loads((Path(done["run"]) / "model" / "adapter_config.json").read_text("utf-8"))
    names = {name.rsplit(".", 1)[-1] for name in told["target_modules"]}
    assert names == {"c_attn", "c_fc", "c_proj"}
    assert any("adapters on c_attn, c_fc, c_proj" in one.get("text", "") for one in done["events"])


def test_095_kto_odd_batch(zygote, tiny, home, tmp_path):
    for count in (6, 7, 8):  # 7 and 8 leave a last batch of one and of two
        pairs = zygote.call("tests.cpu.jobs:kl_pairs", count=count, batch=3)
        assert len(pairs) == count and all(own != other for own, other in pairs)
    rows = write_rows(tmp_path / "thumbs.jsonl", test_preference.thumbs(8))
    wanted = job(tiny, tmp_path, 0, data={}, stage="kto", batch_size=3, epochs=1.0, logging_steps=1)
    done = zygote.call("tests.cpu.jobs:train", job={**wanted, "data": {"path": rows}}, home=str(home))
    assert done["code"] == 0 and list(done["losses"]) == ["1", "2", "3"], done["events"][-1]
