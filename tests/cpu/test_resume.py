"""A stopped run that is resumed is the run that was never stopped: same losses, same weights, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints
from core.runs.events import read_events
from core.runs.folder import Run
from core.runs.storage import read_json, write_json
from tests.cpu import test_metrics, test_pretrain, test_sft
from tests.cpu.conftest import chats, next_attempt, write_rows
from tests.zygote import Zygote

JOBS: dict[str, dict[str, Any]] = {
    "sft_lora": {"method": {"name": "lora", "rank": 8, "alpha": 16, "dropout": 0.2}},
    "sft_full": {"method": "full", "train": {"scheduler": "cosine", "warmup": 2.0}},
    "sft_packed": {"stage": {"name": "sft", "packing": True, "max_length": 64}},
    "sft_qlora": {"method": {"name": "qlora", "rank": 8}},
    "pretrain": {},
}
OTHERS = ("reward", "dpo", "kto", "orpo", "grpo", "rloo")
"""Stages whose job is made by test_metrics; here with an adapter and with all weights in turn."""


@pytest.fixture(params=[*JOBS, *OTHERS])
def job(request: pytest.FixtureRequest, tiny: str, tmp_path: Path) -> dict[str, Any]:
    """A job of six steps; with dropout, accumulation, warmup or packing, whose state must be resumed too."""
    if request.param == "pretrain":
        return test_pretrain.job(tiny, write_rows(tmp_path / "texts.jsonl", test_pretrain.texts(40)))
    if request.param in OTHERS:
        made = test_metrics.job_of(request.param, tiny, tmp_path)
        method = "full" if request.param in ("dpo", "grpo") else {"name": "lora", "rank": 8}
        return {**made, "method": method, "train": {**made["train"], "max_steps": 6}}
    data = write_rows(tmp_path / "rows.jsonl", chats(50))
    return test_sft.job(tiny, data, **JOBS[request.param])


def counts(run: Run) -> dict[int, dict[str, float]]:
    """The counters of each step, as the last attempt that took it wrote them."""
    events, _ = read_events(run.events)
    metrics = [one for one in events if one.event == "metric"]
    names = ("tokens", "trained_tokens")
    return {one.step: {name: one.values[name] for name in names if name in one.values} for one in metrics}


def test_stopped_at_3_of_6_and_resumed_equals_run_through(
    zygote: Zygote, home: Path, job: dict[str, Any]
) -> None:
    through = zygote.call("tests.cpu.jobs:train", job=job, home=str(home / "through"))
    assert through["code"] == 0 and len(through["losses"]) == 6
    folder = zygote.call("tests.cpu.jobs:submit", job=job, home=str(home / "stopped"))
    stopped = zygote.call("tests.cpu.jobs:work", run_dir=folder, stop_at=3)
    run = Run(Path(folder))
    assert stopped["code"] == 3 and list(stopped["losses"]) == ["1", "2", "3"]
    assert [path.name for path in checkpoints.complete(run)] == ["checkpoint-3"]
    assert not run.model.exists()
    next_attempt(run, 2)
    resumed = zygote.call("tests.cpu.jobs:work", run_dir=folder)
    assert resumed["code"] == 0
    assert resumed["losses"] == through["losses"]
    assert counts(run) == counts(Run(Path(through["run"])))
    weights = [
        zygote.call("tests.cpu.jobs:weights", folder=f"{path}/model") for path in (folder, through["run"])
    ]
    assert weights[0] == weights[1] and weights[0]


def test_a_run_resumed_after_its_last_step_only_saves_the_model(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(50))
    done = zygote.call("tests.cpu.jobs:train", job=test_sft.job(tiny, data, method="full"), home=str(home))
    run = Run(Path(done["run"]))
    before = zygote.call("tests.cpu.jobs:weights", folder=str(run.model))
    checkpoints.discard(run.model)  # as a kill between the last checkpoint and the model would leave it
    next_attempt(run, 2)
    again = zygote.call("tests.cpu.jobs:work", run_dir=str(run.path))
    assert again["code"] == 0 and checkpoints.is_complete(run.model)
    assert zygote.call("tests.cpu.jobs:weights", folder=str(run.model)) == before


def test_the_best_weights_survive_a_stop_and_retention_keeps_them(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    # Held-out answers unlike any that is learnt: the better the run learns, the worse they fit.
    turns = [
        {"role": "user", "content": "What is 1 and 1?"},
        {"role": "assistant", "content": "Vexed zebras jump by."},
    ]
    data = {
        "path": write_rows(tmp_path / "rows.jsonl", chats(50)),
        "eval": write_rows(tmp_path / "eval.jsonl", [{"messages": turns}] * 4),
    }
    overfit = {
        "max_steps": 30,
        "eval_steps": 3,
        "save_steps": 4,
        "keep_best": True,
        "learning_rate": 3e-2,
        "keep_checkpoints": 1,
    }
    job = test_sft.job(tiny, data, method="full", train=overfit)
    through = zygote.call("tests.cpu.jobs:train", job=job, home=str(home / "through"))
    folder = zygote.call("tests.cpu.jobs:submit", job=job, home=str(home / "stopped"))
    best = min(through["eval_losses"], key=lambda step: through["eval_losses"][step])
    stop_at = int(best) + 6
    assert stop_at < 30, "the held-out loss must rise early, or the best weights are the last"
    assert zygote.call("tests.cpu.jobs:work", run_dir=folder, stop_at=stop_at)["code"] == 3
    run = Run(Path(folder))
    assert {path.name for path in checkpoints.complete(run)} == {
        f"checkpoint-{best}",
        f"checkpoint-{stop_at}",
    }
    next_attempt(run, 2)
    assert zygote.call("tests.cpu.jobs:work", run_dir=folder)["code"] == 0
    weights = [
        zygote.call("tests.cpu.jobs:weights", folder=f"{path}/model") for path in (folder, through["run"])
    ]
    assert weights[0] == weights[1] and weights[0]


def test_a_save_that_does_not_fit_is_skipped_with_a_warning_and_training_goes_on(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(50))
    job = test_sft.job(tiny, data, method="full", train={"save_steps": 2})
    done = zygote.call("tests.faults.kills:train_without_room", job=job, home=str(home))
    assert done["code"] == 0
    warnings = [event for event in done["events"] if event["event"] == "warning"]
    assert [warning["code"] for warning in warnings] == ["checkpoint_skipped"] * 3
    assert "step 2" in warnings[0]["message"] and "GiB" in warnings[0]["message"]
    assert checkpoints.complete(Run(Path(done["run"]))) == []
    assert checkpoints.is_complete(Run(Path(done["run"])).model)


def test_a_finished_run_made_longer_is_the_run_that_was_long_from_the_start(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(50))

    def job(steps: int, scheduler: str) -> dict[str, Any]:
        return test_sft.job(
            tiny, data, method="full", train={"max_steps": steps, "scheduler": scheduler, "warmup": 0.0}
        )

    def rates(run: Run) -> dict[int, float]:
        events, _ = read_events(run.events)
        return {one.step: one.values["learning_rate"] for one in events if one.event == "metric"}

    for scheduler in ("constant", "linear"):
        through = zygote.call(
            "tests.cpu.jobs:train", job=job(6, scheduler), home=str(home / f"{scheduler}-6")
        )
        short = zygote.call("tests.cpu.jobs:train", job=job(3, scheduler), home=str(home / f"{scheduler}-3"))
        run, long_run = Run(Path(short["run"])), Run(Path(through["run"]))
        write_json(run.job_json, read_json(long_run.job_json))
        next_attempt(run, 2)
        longer = zygote.call("tests.cpu.jobs:work", run_dir=str(run.path))
        assert longer["code"] == 0 and checkpoints.is_complete(run.model)
        assert (checkpoints.marker(run.model) or {})["step"] == 6
        assert not list(run.path.glob(".trash-*"))
        assert {step: rates(run)[step] for step in (4, 5, 6)} == {
            step: rates(long_run)[step] for step in (4, 5, 6)
        }
        (told,) = [one for one in read_events(run.events)[0] if getattr(one, "code", "") == "length_changed"]
        assert told.message.startswith(
            "The run has 6 steps now, not 3, and goes on behind step 3: its learning rate"
        )
        if scheduler == "constant":
            assert longer["losses"] == through["losses"]
            weights = [
                zygote.call("tests.cpu.jobs:weights", folder=str(one.model)) for one in (run, long_run)
            ]
            assert weights[0] == weights[1] and weights[0]
        else:
            assert "where the old schedule had 0." in told.message
