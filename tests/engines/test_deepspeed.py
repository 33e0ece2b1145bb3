"""DeepSpeed's three stages in two processes over gloo: one process's numbers, whole models, checkpoints that resume."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints
from core.runs.folder import Run
from tests.cpu import test_sft
from tests.cpu.conftest import chats, next_attempt, write_rows
from tests.cpu.test_ddp import LONG, both, check, near
from tests.zygote import Zygote

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="factory env install deepspeed"),
]
NEAR = 1e-4
"""DeepSpeed adds gradients up in buckets, and clips by a norm of its own sums; fp32."""


def sharing(stage: int) -> dict[str, Any]:
    """Hardware of two processes under a stage of DeepSpeed's."""
    return {"devices": 2, "strategy": f"deepspeed-{stage}"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    return tmp_path / "home"


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_two_processes_are_one_with_twice_the_accumulation(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str, zero: int
) -> None:
    two = check(zygote, home, both(stage, method, tiny, tmp_path, sharing(zero)), NEAR)
    kept = json.loads((Path(two["run"]) / "deepspeed.json").read_text("utf-8"))
    assert kept["zero_optimization"]["stage"] == zero
    assert [two["events"].count(name) for name in ("ready", "start", "done")] == [1, 1, 1]
    if method == "full":
        assert zygote.call("tests.worlds:answers", folder=f"{two['run']}/model")


@pytest.mark.parametrize(("zero", "method"), [(1, "lora"), (2, "full"), (3, "full"), (3, "lora")])
def test_a_stopped_run_goes_on_where_it_was(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, zero: int, method: str
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(50))
    job = test_sft.job(
        tiny,
        data,
        method="full" if method == "full" else {"name": "lora", "rank": 8, "alpha": 16},
        hardware=sharing(zero),
        train={"gradient_accumulation": 1},
    )
    through = zygote.call("tests.worlds:train", job=job, home=str(home / "through"))
    assert through["codes"] == [0, 0] and len(through["losses"]) == 6, through["errors"]
    folder = zygote.call("tests.cpu.jobs:submit", job=job, home=str(home / "stopped"))
    stopped = zygote.call("tests.worlds:work", run_dir=folder, stop_at=3)
    assert stopped["outcomes"] == ["stopped", "stopped"]
    run = Run(Path(folder))
    assert [path.name for path in checkpoints.complete(run)] == ["checkpoint-3"]
    next_attempt(run, 2)
    resumed = zygote.call("tests.worlds:work", run_dir=folder)
    assert resumed["codes"] == [0, 0] and resumed["losses"] == through["losses"]
    assert zygote.call("tests.worlds:farthest", one=f"{folder}/model", other=f"{through['run']}/model") == 0


@pytest.mark.parametrize("zero", [2, 3])
def test_the_best_weights_are_delivered_and_answers_are_given_on_the_way(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, zero: int
) -> None:
    data = {"path": write_rows(tmp_path / "rows.jsonl", chats(50)), "eval": 0.2}
    job = test_sft.job(
        tiny,
        data,
        method="full",
        hardware=sharing(zero),
        train={
            "gradient_accumulation": 1,
            "eval_steps": 2,
            "keep_best": True,
            "learning_rate": 3e-2,
            "max_steps": 8,
        },
        evaluate={"prompts": ["What is 1 and 1?"], "max_new_tokens": 4, "every": 4},
    )
    done = zygote.call("tests.worlds:train", job=job, home=str(home))
    assert done["codes"] == [0, 0], done["errors"]
    assert done["events"].count("sample") == 4, "before, twice on the way, after"
    before = json.loads((Path(done["run"]) / "baseline.json").read_text("utf-8"))["eval_loss"]
    alone = {**job, "hardware": {}, "train": {**job["train"], "max_steps": 1, "gradient_accumulation": 2}}
    one = zygote.call("tests.cpu.jobs:train", job=alone, home=str(home / "one"))
    same = json.loads((Path(one["run"]) / "baseline.json").read_text("utf-8"))["eval_loss"]
    assert before == pytest.approx(same, rel=0.02), "the mean is one of batches, and these hold other rows"
    assert zygote.call("tests.worlds:answers", folder=f"{done['run']}/model")


def test_a_single_process_may_use_it_too(zygote: Zygote, tiny: str, home: Path, tmp_path: Path) -> None:
    one, _ = both("sft", "full", tiny, tmp_path, {})
    alone = {**one, "hardware": {"strategy": "deepspeed-2"}}
    done = zygote.call("tests.worlds:train", job=alone, home=str(home), processes=1)
    plain = zygote.call("tests.cpu.jobs:train", job=one, home=str(home / "plain"))
    assert done["codes"] == [0] and done["losses"] == pytest.approx(plain["losses"], rel=NEAR), done["errors"]


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("stage", ["pretrain", "reward", "kto", "orpo", "grpo", "rloo"])
def test_weights_that_are_shared_out_teach_every_other_stage_the_same(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    """Stage 2 has the whole model in every process, stage 3 a share: what they learn is the same."""
    found = []
    for zero in (2, 3):
        _, job = both(stage, method, tiny, tmp_path, sharing(zero))
        if stage in ("grpo", "rloo"):
            job["stage"] = {"name": stage, "num_generations": 4, "max_completion_length": 8, "beta": 0.04}
            job["rewards"] = [LONG]
        found.append(
            zygote.call("tests.worlds:train", job=job, home=str(home / f"{zero}"), same_answers=True)
        )
    two, three = found
    assert two["codes"] == three["codes"] == [0, 0], (two["errors"], three["errors"])
    assert near(two["losses"], three["losses"], NEAR) and near(two["norms"], three["norms"], NEAR)
