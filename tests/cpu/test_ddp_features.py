"""What a job may ask for besides, in two processes: each feature by itself is what one process does with twice the
accumulation. The tolerances are those of tests/cpu/test_ddp.py where nothing else is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints
from core.runs.folder import Run
from tests.cpu import test_ddp, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.zygote import Zygote

ADAPTER = {"rank": 8, "alpha": 16}
FEATURES: dict[str, dict[str, Any]] = {
    "packing": {"stage": {"name": "sft", "packing": True, "max_length": 48}},
    "gradient checkpointing": {"train": {"gradient_checkpointing": True}},
    "gradient checkpointing of all weights": {"method": "full", "train": {"gradient_checkpointing": True}},
    "pissa": {"method": {"name": "lora", "init": "pissa", **ADAPTER}},
    "olora": {"method": {"name": "lora", "init": "olora", **ADAPTER}},
    "qlora": {"method": {"name": "qlora", **ADAPTER}},
    "qlora with packing and checkpointing": {
        "method": {"name": "qlora", **ADAPTER},
        "stage": {"name": "sft", "packing": True, "max_length": 48},
        "train": {"gradient_checkpointing": True},
    },
}


def both(data: Any, tiny: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
    """A job of three steps in one process with accumulation 2, and in two processes without."""
    train = {"batch_size": 2, "max_steps": 3, **parts.get("train", {})}
    one = test_sft.job(tiny, data, **{**parts, "train": {**train, "gradient_accumulation": 2}})
    two = test_sft.job(tiny, data, **{**parts, "train": {**train, "gradient_accumulation": 1}})
    return [one, {**two, "hardware": test_ddp.TWO}]


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_in_two_processes_is_that_of_one_with_twice_the_accumulation(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, feature: str
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(60))
    two = test_ddp.check(zygote, home, both(data, tiny, FEATURES[feature]))
    assert two["outcomes"] == ["done", "done"] and len(two["losses"]) == 3


@pytest.mark.slow
def test_the_best_weights_and_the_early_end_are_those_of_one_process(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    # Held-out answers unlike any that is learnt: the better the run learns, the worse they fit.
    turns = [
        {"role": "user", "content": "What is 1 and 1?"},
        {"role": "assistant", "content": "Vexed zebras jump by."},
    ]
    data = {
        "path": write_rows(tmp_path / "rows.jsonl", chats(48)),
        "eval": write_rows(tmp_path / "eval.jsonl", [{"messages": turns}] * 4),
    }
    settings = {
        "max_steps": 40,
        "eval_steps": 2,
        "save_steps": 2,
        "keep_best": True,
        "early_stopping": 2,
        "learning_rate": 1e-2,
    }
    jobs = both(data, tiny, {"method": "full", "train": settings})
    one = zygote.call("tests.cpu.jobs:train", job=jobs[0], home=str(home / "one"))
    two = zygote.call("tests.worlds:train", job=jobs[1], home=str(home / "two"))
    assert one["code"] == 0 and two["codes"] == [0, 0], two["errors"]
    assert test_ddp.near(one["eval_losses"], two["eval_losses"], 1e-3), (
        one["eval_losses"],
        two["eval_losses"],
    )
    best = min(two["eval_losses"], key=lambda step: two["eval_losses"][step])
    assert int(best) < int(list(two["eval_losses"])[-1]) < 40, "it must have ended early, after its best"
    for done in (one, two):
        kept = [path.name for path in checkpoints.complete(Run(Path(done["run"])))]
        assert f"checkpoint-{best}" in kept
        models = [f"{done['run']}/model", f"{done['run']}/checkpoints/checkpoint-{best}"]
        assert zygote.call("tests.worlds:farthest", one=models[0], other=models[1]) == 0
    assert "warning" in two["events"]
