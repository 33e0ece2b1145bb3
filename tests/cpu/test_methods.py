"""The ways to train: which weights move, what is left behind, and going on from a trained adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.job.models import check_folder
from core.job.optimizers import optimizer_names, package_for
from data.errors import FactoryError
from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_preference import pairs
from tests.cpu.test_sft import job
from tests.zygote import Zygote


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A file of fifty chats."""
    return write_rows(tmp_path / "rows.jsonl", chats(50))


def train(zygote: Zygote, home: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a job that must succeed."""
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    return dict(done)


def test_freeze_moves_the_last_layers_and_nothing_else(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    method = {"name": "freeze", "layers": 1, "modules": ["norm"]}
    done = train(zygote, home, job(tiny, data, method=method))
    before = zygote.call("tests.cpu.jobs:weights", folder=tiny)
    after = zygote.call("tests.cpu.jobs:weights", folder=f"{done['run']}/model")
    moved = {name for name in before if before[name] != after[name]}
    assert moved and all(name.startswith("model.layers.1.") or name == "model.norm.weight" for name in moved)


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ({"name": "freeze", "layers": 9}, "too_few_layers"),
        ({"name": "freeze", "layers": 0}, "nothing_trainable"),
        ({"name": "freeze", "modules": ["lm_haed"]}, "module_not_found"),
        ({"name": "lora", "modules_to_save": ["embeddings"]}, "module_not_found"),
    ],
)
def test_a_method_that_does_not_fit_the_model_is_refused(
    zygote: Zygote, tiny: str, home: Path, data: str, method: dict[str, Any], code: str
) -> None:
    done = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, method=method), home=str(home))
    assert (done["code"], done["events"][-1]["code"]) == (2, code)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "qlora", "rank": 8},
        {"name": "qlora", "rank": 8, "bits": "int8"},
        {"name": "lora", "rank": 8, "dora": True},
        {"name": "lora", "rank": 8, "rslora": True, "init": "gaussian"},
        {"name": "lora", "rank": 8, "init": "olora"},
        {"name": "lora", "rank": 8, "modules_to_save": ["embed_tokens", "lm_head"]},
    ],
    ids=lambda method: "-".join(str(value) for value in method.values()),
)
def test_an_adapter_learns_and_its_result_loads_onto_the_plain_base(
    zygote: Zygote, tiny: str, home: Path, data: str, method: dict[str, Any]
) -> None:
    steps = {"max_steps": 12, "learning_rate": 2e-2}
    done = train(zygote, home, job(tiny, data, method=method, train=steps))
    losses = list(done["losses"].values())
    assert losses[-1] < losses[0] - 0.1
    rows = [row["messages"] for row in chats(4)]
    loaded = zygote.call("tests.cpu.jobs:adapter_loss", base=tiny, adapter=f"{done['run']}/model", rows=rows)
    assert loaded["adapter"] < loaded["base"] - 0.1


def test_evaluating_in_the_middle_does_not_change_a_quantised_base(
    zygote: Zygote, tiny: str, home: Path, data: str, tmp_path: Path
) -> None:
    held_out = write_rows(tmp_path / "eval.jsonl", chats(60)[50:])
    method = {"name": "qlora", "rank": 8}
    plain = train(zygote, home, job(tiny, data, method=method))
    asked = job(tiny, {"path": data, "eval": held_out}, method=method, train={"eval_steps": 2})
    assert train(zygote, home, asked)["losses"] == plain["losses"]


def test_pissa_gives_an_adapter_for_the_unchanged_base(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    asked = job(tiny, data, method={"name": "lora", "rank": 4, "init": "pissa"}, train={"learning_rate": 0.0})
    done = train(zygote, home, asked)
    rows = [row["messages"] for row in chats(4)]
    loaded = zygote.call("tests.cpu.jobs:adapter_loss", base=tiny, adapter=f"{done['run']}/model", rows=rows)
    assert loaded["adapter"] == pytest.approx(loaded["base"], abs=1e-4)
    assert [event["kind"] for event in done["events"] if event["event"] == "sample"] == ["before", "after"]


def test_a_trained_adapter_goes_on_learning(zygote: Zygote, tiny: str, home: Path, data: str) -> None:
    first = train(zygote, home, job(tiny, data, train={"max_steps": 12, "learning_rate": 2e-2}))
    model = {"name": tiny, "adapter": f"{first['run']}/model"}
    second = train(zygote, home, job(model, data, train={"max_steps": 3}))
    assert second["losses"]["1"] < first["losses"]["1"] - 0.1
    merged = train(zygote, home, job(model, data, method="full", train={"max_steps": 1}))
    assert merged["losses"]["1"] == pytest.approx(second["losses"]["1"], abs=1e-4)


def test_dpo_on_a_trained_adapter_keeps_that_adapter_as_its_reference(
    zygote: Zygote, tiny: str, home: Path, data: str, tmp_path: Path
) -> None:
    first = train(zygote, home, job(tiny, data, train={"max_steps": 12, "learning_rate": 2e-2}))
    rows = write_rows(tmp_path / "pairs.jsonl", pairs(16))
    model = {"name": tiny, "adapter": f"{first['run']}/model"}
    done = train(zygote, home, job(model, rows, stage="dpo", train={"max_steps": 2}))
    assert done["losses"]["1"] == pytest.approx(0.6931, abs=1e-3)  # policy and reference are still the same
    assert not (Path(done["run"]) / "model" / "ref").exists()


def test_an_adapter_as_model_is_refused_with_its_base(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    folder = Path(train(zygote, home, job(tiny, data))["run"]) / "model"
    with pytest.raises(FactoryError) as caught:
        check_folder(folder)
    finding = caught.value.findings[0]
    assert finding.code == "model_is_an_adapter" and tiny in finding.message
    assert finding.fix == {"model.name": tiny, "model.adapter": str(folder)}


def test_the_names_of_optimizers_are_the_librarys_own(zygote: Zygote) -> None:
    assert list(optimizer_names()) == zygote.call("tests.cpu.jobs:library_optimizers")
    assert package_for("adamw_torch_fused") is None and package_for("paged_lion_8bit") is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adafactor"},
        {"optimizer": "lion_8bit"},
        {"optimizer": "rmsprop"},
        {"scheduler": "cosine_with_restarts", "scheduler_cycles": 2},
        {"scheduler": "cosine_with_min_lr"},
        {"scheduler": "warmup_stable_decay", "scheduler_decay": 0.5, "warmup": 0.2},
        {"scheduler": "inverse_sqrt", "warmup": 2.0},
        {"neftune_alpha": 5.0},
        {"gradient_checkpointing": True},
    ],
    ids=lambda settings: "-".join(f"{value}" for value in settings.values()),
)
def test_a_setting_of_the_schedule_runs_and_changes_the_losses(
    zygote: Zygote, tiny: str, home: Path, data: str, settings: dict[str, Any]
) -> None:
    plain = train(zygote, home, job(tiny, data))
    done = train(zygote, home, job(tiny, data, train=settings))
    same = done["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert same is ("gradient_checkpointing" in settings)


def test_accumulating_one_by_eight_equals_eight_by_one(
    zygote: Zygote, tiny: str, home: Path, data: str
) -> None:
    one = train(zygote, home, job(tiny, data, train={"batch_size": 1, "gradient_accumulation": 8}))
    eight = train(zygote, home, job(tiny, data, train={"batch_size": 8, "gradient_accumulation": 1}))
    assert one["losses"] == pytest.approx(eight["losses"], rel=1e-5)


def test_early_stopping_ends_a_run_that_no_longer_improves(
    zygote: Zygote, tiny: str, home: Path, data: str, tmp_path: Path
) -> None:
    held_out = write_rows(tmp_path / "eval.jsonl", chats(60)[50:])
    settings = {
        "max_steps": 60,
        "eval_steps": 2,
        "early_stopping": 2,
        "learning_rate": 0.0,
        "keep_best": True,
    }
    done = train(zygote, home, job(tiny, {"path": data, "eval": held_out}, train=settings))
    assert list(done["eval_losses"]) == ["2", "4", "6"]
    assert any(event.get("code") == "stopped_early" for event in done["events"])
