"""Ejected trainings: plain trl in a script without us, and the same losses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_online, test_preference, test_pretrain, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.zygote import Zygote

SHORT = {"max_steps": 3, "logging_steps": 1}
LORA = {"name": "lora", "rank": 8, "alpha": 16}


def _sft(model: str, folder: Path, **parts: Any) -> dict[str, Any]:
    data = {"path": write_rows(folder / "rows.jsonl", chats(40)), "eval": 0.1}
    return test_sft.job(model, data, train=SHORT, **parts)


def _pretrain(model: str, folder: Path) -> dict[str, Any]:
    return test_pretrain.job(model, write_rows(folder / "rows.jsonl", test_pretrain.texts(40)), train=SHORT)


def _preference(stage: str, model: str, folder: Path, **parts: Any) -> dict[str, Any]:
    rows = write_rows(folder / "rows.jsonl", test_preference.rows_of(stage, 40))
    return test_preference.job(
        model, rows, test_preference.STAGES[stage], "chatml", train={**SHORT, "batch_size": 4}, **parts
    )


def _online(stage: str, model: str, folder: Path, **parts: Any) -> dict[str, Any]:
    rows = write_rows(folder / "rows.jsonl", test_online.prompts(40))
    train = {**SHORT, "max_steps": 2, "padding_free": False}
    return test_online.job(model, rows, {"name": stage}, train=train, **parts)


REWARDS = [
    {"name": "accuracy", "mode": "number"},
    {"name": "format", "pattern": "[a-z].*", "match": "anywhere", "weight": 0.5},
    {"name": "repetition", "run": 1, "unit": "characters", "weight": 2.0},
]


JOBS = {
    "sft, lora": lambda model, folder: _sft(model, folder, method=LORA),
    "sft, full": lambda model, folder: _sft(model, folder, method="full"),
    "sft, freeze": lambda model, folder: _sft(model, folder, method={"name": "freeze", "layers": 1}),
    "pretrain, packed": _pretrain,
    "dpo, lora": lambda model, folder: _preference("dpo", model, folder, method=LORA),
    "dpo, full": lambda model, folder: _preference("dpo", model, folder, method="full"),
    "simpo, lora": lambda model, folder: _preference("simpo", model, folder, method=LORA),
    "kto, lora": lambda model, folder: _preference("kto", model, folder, method=LORA),
    "orpo, lora": lambda model, folder: _preference("orpo", model, folder, method=LORA),
    "reward, lora": lambda model, folder: _preference("reward", model, folder, method=LORA),
    "grpo, lora": lambda model, folder: _online("grpo", model, folder, rewards=REWARDS),
    "rloo, lora": lambda model, folder: _online("rloo", model, folder, rewards=REWARDS),
}


@pytest.mark.parametrize("what", JOBS)
def test_the_script_gives_the_same_losses_and_knows_nothing_of_us(
    zygote: Zygote, tiny: str, tmp_path: Path, what: str
) -> None:
    job = JOBS[what](tiny, tmp_path)
    home, folder = str(tmp_path / "home"), tmp_path / "ejected"
    ours = zygote.call("tests.cpu.jobs:train", job=job, home=home)
    assert ours["code"] == 0, ours["events"][-1]
    told = zygote.call("tests.cpu.exports:eject", job=job, home=home, folder=str(folder))
    assert {"train.py", "requirements.txt", "train.jsonl"} <= set(told["files"])
    text = (folder / "train.py").read_text("utf-8")
    assert not re.search(r"^\s*(from|import) (core|data|webui)\b", text, re.MULTILINE)
    assert len(text.splitlines()) < 120 and max(map(len, text.splitlines())) < 400
    theirs = zygote.call("tests.cpu.exports:run_script", folder=str(folder))
    assert theirs["loss"] == pytest.approx(list(ours["losses"].values()), rel=1e-5, abs=1e-7)
    assert theirs["grad_norm"] == pytest.approx(test_online.metrics_of(ours, "grad_norm"), rel=1e-4)
    assert len(theirs["loss"]) == job["train"]["max_steps"]
    assert "rewards" not in job or test_online.taught(ours)
    pins = (folder / "requirements.txt").read_text("utf-8")
    assert re.search(r"^trl==1\.12\.\d+$", pins, re.MULTILINE)


def test_what_no_short_script_can_do_is_refused_in_a_sentence(
    zygote: Zygote, tiny: str, tmp_path: Path
) -> None:
    job = _online("grpo", tiny, tmp_path)
    ppo = {**job, "stage": {"name": "ppo", "max_completion_length": 16}}
    foreign = {**job, "engine": "unsloth"}
    for asked, code in (
        (ppo, "eject_ppo"),
        ({**job, "rewards": [{"name": "accuracy", "mode": "gym"}]}, "eject_reward"),
        (foreign, "eject_engine"),
    ):
        told = zygote.call(
            "tests.cpu.exports:eject", job=asked, home=str(tmp_path / "home"), folder=str(tmp_path / "no")
        )
        assert told["refused"] == [code] and not (tmp_path / "no").exists()


def test_an_interrupted_eject_leaves_nothing_and_a_folder_that_cannot_be_made_is_named(
    zygote: Zygote, tiny: str, tmp_path: Path
) -> None:
    job, home, place = _sft(tiny, tmp_path), str(tmp_path / "home"), tmp_path / "place"
    place.mkdir()
    assert (
        zygote.call("tests.cpu.exports:eject_interrupted", job=job, home=home, folder=str(place / "x")) == []
    )
    told = zygote.call("tests.cpu.exports:eject", job=job, home=home, folder="/proc/zz")
    assert told["refused"] == ["target_not_written"]
