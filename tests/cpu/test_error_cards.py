"""Every row of the table of error cards, brought about by a real fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.job.advice import SAME, TABLE, card
from core.job.checks import check
from core.job.load import parse_job
from core.job.machine import this_machine
from tests.cpu.conftest import chats, write_rows

LAST = {"role": "assistant", "content": "Yes."}
CHATS = {
    "stage": "sft",
    "train": {"batch_size": 2, "gradient_accumulation": 1, "max_steps": 2, "logging_steps": 1},
    "evaluate": {"prompts": ["Hello"], "max_new_tokens": 1},
}


def train(
    zygote: Any, home: Path, tmp_path: Path, model: Any, function: str = "train", **parts: Any
) -> dict[str, Any]:
    """The error event of a run that fails, its card included."""
    arguments = parts.pop("arguments", {})
    rows = write_rows(tmp_path / "rows.jsonl", parts.pop("rows", chats(24)))
    wanted = {
        "model": model,
        "data": rows,
        **CHATS,
        **parts,
        "train": CHATS["train"] | parts.get("train", {}),
    }
    done = zygote.call(f"tests.cpu.jobs:{function}", job=wanted, home=str(home), **arguments)
    assert done["code"] in (1, 2)
    error = next(event for event in done["events"] if event["event"] == "error")
    return {**error, "warnings": [e["code"] for e in done["events"] if e["event"] == "warning"]}


def test_memory_that_runs_out_offers_a_smaller_batch(zygote, tiny, home, tmp_path):
    error = train(
        zygote, home, tmp_path, tiny, "train_limited", arguments={"kind": "AS", "room": 200 << 20},
        stage={"name": "sft", "train_on": "all"}, train={"batch_size": 512},
        rows=[{"messages": [{"role": "user", "content": f"{n} " * 400}, LAST]} for n in range(512)],
    )  # fmt: skip
    assert (error["code"], error["advice"]["setting"]) == ("out_of_memory", "train.batch_size")
    assert "-o train.batch_size=256 -o train.gradient_accumulation=2" in error["advice"]["command"]


def test_a_full_disk_says_what_to_free(zygote, tiny, home, tmp_path):
    error = train(
        zygote,
        home,
        tmp_path,
        tiny,
        "train_limited",
        arguments={"kind": "FSIZE", "room": 300_000},
        method="full",
    )
    assert (error["code"], error["advice"]["setting"]) == ("disk_full", "train.keep_checkpoints")


def test_a_loss_that_is_no_number_offers_a_lower_rate(zygote, tiny, home, tmp_path):
    error = train(
        zygote,
        home,
        tmp_path,
        tiny,
        "train_with_nan",
        arguments={"at_step": 2},
        train={"learning_rate": 1e-3},
    )
    assert error["code"] == "loss_not_finite"
    assert error["advice"]["command"].endswith("job.json -o train.learning_rate=0.0002")


def test_a_loss_that_grows_offers_a_lower_rate(zygote, tiny, home, tmp_path):
    error = train(
        zygote, home, tmp_path, tiny, method="full",
        train={"learning_rate": 1.0, "max_steps": 30, "warmup": 0.0, "optimizer": "sgd", "max_grad_norm": 1000.0},
    )  # fmt: skip
    assert (
        error["code"] in ("loss_diverged", "loss_not_finite")
        and error["advice"]["setting"] == "train.learning_rate"
    )


def test_rewards_that_are_all_the_same_are_warned_of_and_have_a_card(zygote, tiny, home, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": f"{n}?", "answer": "x"} for n in range(32)])
    wanted = {
        "model": tiny,
        "data": rows,
        **CHATS,
        "stage": {"name": "grpo", "num_generations": 2, "max_completion_length": 4},
        "rewards": ["json_valid"],
        "train": CHATS["train"] | {"max_steps": 6},
    }
    done = zygote.call("tests.cpu.jobs:train", job=wanted, home=str(home))
    assert "no_reward_signal" in [
        event.get("code") for event in done["events"] if event["event"] == "warning"
    ]
    made = card("no_reward_signal", wanted, id="x", job_file="/a b/job.json")
    assert made is not None and made.command.startswith(
        "factory train '/a b/job.json' -o stage.num_generations=4"
    )


def test_chats_without_a_template_offer_one(zygote, home, tmp_path):
    zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "bare"), template=None)
    error = train(zygote, home, tmp_path, str(tmp_path / "bare"))
    assert (error["code"], error["advice"]["setting"]) == ("template_missing", "model.template")
    assert error["advice"]["command"].endswith("-o model.template=chatml")


def test_nothing_to_train_lets_layers_move(zygote, tiny, home, tmp_path):
    error = train(zygote, home, tmp_path, tiny, method={"name": "freeze", "layers": 0})
    assert (error["code"], error["advice"]["setting"]) == ("nothing_trainable", "method.layers")
    assert error["advice"]["command"].endswith("-o method.layers=2")


def test_a_model_that_the_hub_does_not_give_names_its_reasons(zygote, home, tmp_path):
    error = train(zygote, home, tmp_path, "some-org/gated-model")
    assert (error["code"], error["advice"]["setting"]) == ("model_not_reachable", "model.name")
    assert "HF_TOKEN" in error["advice"]["change"]


def test_offline_and_missing_packages_are_found_before_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    text = f"model: some-org/model\ndata: {rows}\nstage: sft\ntrain: {{optimizer: galore_adamw}}\n"
    codes = {one.code for one in check(parse_job(text), this_machine(), tmp_path)}
    assert {"model_offline"} < codes
    cards = {code: made for code in codes if (made := card(code, {}, id="x", job_file="job.json"))}
    assert {one.code for one in cards.values()} >= {"model_offline", "engine_not_installed"}


def test_an_adapter_of_another_model_names_the_base(zygote, tiny, home, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    done = zygote.call("tests.cpu.jobs:train", job={"model": tiny, "data": rows, **CHATS}, home=str(home))
    zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "wide"), hidden=128)
    adapter = str(Path(done["run"]) / "model")
    error = train(zygote, home, tmp_path, {"name": str(tmp_path / "wide"), "adapter": adapter})
    assert (error["code"], error["advice"]["setting"]) == ("adapter_mismatch", "model.name")


def test_models_with_different_tokenizers_are_told_apart(zygote, tiny, home, tmp_path):
    zygote.call("tests.cpu.jobs:save_judge", folder=str(tmp_path / "judge"))
    error = train(
        zygote, home, tmp_path, tiny,
        rows=[{"prompt": f"{n}?", "answer": "x"} for n in range(8)],
        stage={"name": "ppo", "max_completion_length": 4, "value": str(tmp_path / "judge")},
        rewards=["json_valid"], method="full",
    )  # fmt: skip
    assert SAME.get(error["code"]) == "tokenizer_mismatch" and error["advice"]["code"] == "tokenizer_mismatch"


def test_a_reward_that_raises_offers_the_bench(zygote, tiny, home, tmp_path):
    rewards = tmp_path / "broken.py"
    rewards.write_text("def reward(prompts, completions, **columns):\n    raise ValueError('broken')\n")
    error = train(
        zygote, home, tmp_path, tiny, "train_with_rewards", arguments={"folder": str(tmp_path)},
        rows=[{"prompt": f"{n}?", "answer": "x"} for n in range(8)],
        stage={"name": "grpo", "num_generations": 2, "max_completion_length": 4},
        rewards=[{"name": "file", "script": "broken"}],
    )  # fmt: skip
    assert error["advice"]["code"] == "reward_failed" and error["advice"]["command"].startswith(
        "factory rewards try "
    )


def test_every_row_of_the_table_is_brought_about_somewhere():
    tests = Path(__file__).parents[1]
    places = [Path(__file__), *(tests / "faults").glob("*.py"), tests / "engines" / "test_slurm.py"]
    here = "".join(place.read_text("utf-8") for place in places)
    assert [code for code in TABLE if code not in here and code != "storage_error"] == []
    assert set(SAME.values()) <= set(TABLE)
    assert json.dumps(card("killed", {}, id="r", job_file="j", checkpoint=True).to_json())  # type: ignore[union-attr]
