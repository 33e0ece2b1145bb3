"""Supervised fine-tuning through the real worker: a hand-written script's numbers, repeated to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cpu.conftest import chats, write_rows
from tests.zygote import Zygote

LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
TRL = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_steps": 6,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
}


def job(model: Any, data: Any, **parts: Any) -> dict[str, Any]:
    """A small SFT job of six steps."""
    train = {
        "batch_size": 4,
        "gradient_accumulation": 2,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "warmup": 0.0,
        "scheduler": "linear",
        "logging_steps": 1,
        "save_steps": 1000,
    }
    return {
        "model": model,
        "data": data,
        "stage": "sft",
        "method": {"name": "lora", "rank": 8, "alpha": 16},
        "evaluate": {"prompts": ["What is 1 and 1?"], "max_new_tokens": 4},
        **parts,
        "train": train | parts.get("train", {}),
    }


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A file of fifty chats."""
    return write_rows(tmp_path / "rows.jsonl", chats(50))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_losses_equal_those_of_a_hand_written_trl_script(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, data: str, method: str
) -> None:
    spec = {"name": "lora", "rank": 8, "alpha": 16} if method == "lora" else "full"
    ours = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, method=spec), home=str(home))
    assert ours["code"] == 0
    theirs = zygote.call(
        "tests.cpu.jobs:plain_trl_sft",
        model=tiny,
        rows=chats(50),
        out=str(tmp_path / "trl"),
        settings=TRL,
        lora=LORA if method == "lora" else None,
    )
    assert list(ours["losses"].values()) == pytest.approx(theirs, rel=1e-6)
    assert len(theirs) == 6


def test_the_model_learns_and_does_not_with_learning_rate_zero(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    fast = {"max_steps": 20, "learning_rate": 1e-2}
    learnt = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, method="full", train=fast), home=str(home)
    )
    still = zygote.call(
        "tests.cpu.jobs:train",
        job=job(tiny, data, method="full", train={**fast, "learning_rate": 0.0}),
        home=str(home),
    )
    assert _fall(learnt["losses"]) > 1.5
    assert _fall(still["losses"]) < 0.5


def _fall(losses: dict[str, float]) -> float:
    values = list(losses.values())
    return sum(values[:3]) / 3 - sum(values[-3:]) / 3


def test_a_runs_own_job_file_repeats_it_to_the_last_digit(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    dropout = {"name": "lora", "rank": 8, "dropout": 0.1}
    first = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, method=dropout), home=str(home))
    again = json.loads((Path(first["run"]) / "job.json").read_text("utf-8"))
    second = zygote.call("tests.cpu.jobs:train", job=again, home=str(home))
    assert second["losses"] == first["losses"]
    assert zygote.call("tests.cpu.jobs:weights", folder=f"{second['run']}/model") == zygote.call(
        "tests.cpu.jobs:weights", folder=f"{first['run']}/model"
    )


def test_a_run_leaves_everything_that_is_needed_to_use_and_to_repeat_it(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    done = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, method="full"), home=str(home))
    run = Path(done["run"])
    names = {path.name for path in (run / "model").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja", "generation_config.json"} <= names
    assert "COMPLETE.json" in names
    plan = json.loads((run / "plan.json").read_text("utf-8"))
    assert plan["files"][0]["path"] == data and len(plan["files"][0]["sha256"]) == 64
    assert plan["versions"]["trl"] and plan["argv"][1:3] == ["-m", "core.training.worker"]
    kinds = [event["event"] for event in done["events"]]
    assert kinds[0] == "ready" and kinds[-1] == "done" and "checkpoint" in kinds
    asked = [event["kind"] for event in done["events"] if event["event"] == "sample"]
    assert asked == ["before", "after"]


def test_the_first_and_the_last_step_are_always_logged(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, train={"logging_steps": 100}), home=str(home)
    )
    assert list(done["losses"]) == ["1", "6"]


def test_tokens_and_trained_tokens_are_counted_apart_and_without_padding(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    one_epoch = {"max_steps": None, "epochs": 1.0, "batch_size": 8, "gradient_accumulation": 1}
    done = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, train=one_epoch), home=str(home))
    last = [event["values"] for event in done["events"] if event["event"] == "metric"][-1]
    counted = zygote.call("tests.cpu.jobs:count", job=job(tiny, data), home=str(home))
    assert last["tokens"] == counted["tokens"]
    assert last["trained_tokens"] == counted["trained_tokens"] < counted["tokens"]


def test_the_best_weights_are_delivered_though_saving_and_evaluating_do_not_meet(
    zygote: Zygote, tiny: str, home: Path, data: str, tmp_path: Path
) -> None:
    held_out = write_rows(tmp_path / "eval.jsonl", chats(60)[50:])
    overfit = {"max_steps": 30, "eval_steps": 7, "save_steps": 4, "keep_best": True, "learning_rate": 3e-2}
    spec = job(tiny, {"path": data, "eval": held_out}, method="full", train=overfit)
    done = zygote.call("tests.cpu.jobs:train", job=spec, home=str(home))
    assert done["code"] == 0
    best = min(done["eval_losses"], key=lambda step: done["eval_losses"][step])
    kept = {path.name for path in (Path(done["run"]) / "checkpoints").iterdir()}
    assert f"checkpoint-{best}" in kept
    model = zygote.call("tests.cpu.jobs:weights", folder=f"{done['run']}/model")
    assert model == zygote.call(
        "tests.cpu.jobs:weights", folder=f"{done['run']}/checkpoints/checkpoint-{best}"
    )


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    spec = job(tiny, data, method="full", train={"save_steps": 1, "keep_checkpoints": 9})
    broken = zygote.call("tests.cpu.jobs:train_with_nan", job=spec, home=str(home), at_step=4)
    assert broken["code"] == 2
    error = broken["events"][-1]
    assert (error["event"], error["code"]) == ("error", "loss_not_finite")
    assert "step 4" in error["message"]
    kept = sorted(path.name for path in (Path(broken["run"]) / "checkpoints").iterdir())
    assert kept == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert not (Path(broken["run"]) / "model").exists()


def test_a_wrong_target_name_lists_the_models_linear_modules(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    method = {"name": "lora", "target": ["q_proj", "query"]}
    refused = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, method=method), home=str(home))
    assert refused["code"] == 2
    assert refused["events"][-1]["code"] == "module_not_found"
    assert "'query'" in refused["events"][-1]["message"] and "k_proj" in refused["events"][-1]["message"]


def test_packed_rows_do_not_see_each_other(zygote: Zygote, tiny: str, home: Path, data: str) -> None:
    """The loss of one packed batch is the mean over the tokens of the same rows trained apart."""
    differences = zygote.call("tests.cpu.jobs:packed_against_separate", model=tiny)
    assert max(differences) < 1e-5
    assert zygote.call("tests.cpu.jobs:packed_against_separate", model=tiny, restart=False)[-1] > 1e-3
