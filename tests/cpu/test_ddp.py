"""Two processes that train one job: what one process does with twice the accumulation, and told as one run.

The same rows make each step either way, so losses may differ by the order of additions alone (fp32): NEAR. Rows are
a multiple of the batch here: accelerate fills the last, shorter one with rows of the beginning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.runs import checkpoints
from core.runs.folder import Run
from tests.cpu import test_metrics, test_sft
from tests.cpu.conftest import chats, next_attempt, write_rows
from tests.zygote import Zygote

NEAR = 2e-5
"""Largest relative difference of a loss, a gradient's norm or a weight."""
TWO = {"devices": 2, "strategy": "ddp"}
METHODS = {"full": "full", "lora": {"name": "lora", "rank": 8, "alpha": 16}}
LONG = {"name": "length", "unit": "characters", "shortest": 40, "longest": 80, "fade": 40}
QUICK = (("sft", "lora"), ("dpo", "full"))
OTHERS = [
    (stage, method)
    for stage in ("sft", "dpo", "pretrain", "reward", "kto", "orpo")
    for method in METHODS
    if (stage, method) not in QUICK
]


def both(stage: str, method: str, tiny: str, folder: Path, hardware: dict[str, Any]) -> list[dict[str, Any]]:
    """A job of three steps in one process with accumulation 2, and in two processes without."""
    plain = test_metrics.job_of(stage, tiny, folder)
    train = {**plain["train"], "batch_size": 2, "max_steps": 3, "logging_steps": 1, "save_steps": 1000}
    plain = {**plain, "method": METHODS[method]}
    one = {**plain, "train": {**train, "gradient_accumulation": 2}}
    two = {**plain, "train": {**train, "gradient_accumulation": 1}, "hardware": hardware}
    return [one, two]


def near(one: dict[str, float], two: dict[str, float], tolerance: float = NEAR) -> bool:
    """Whether two lists of numbers by step are the same but for the order of additions."""
    return list(one) == list(two) and one == pytest.approx(two, rel=tolerance, abs=tolerance)


def norms_of(done: dict[str, Any]) -> dict[str, float]:
    """Gradient norms by step, from the events of `tests.cpu.jobs:work`."""
    events = [one for one in done["events"] if one["event"] == "metric"]
    return {str(one["step"]): one["values"]["grad_norm"] for one in events if "grad_norm" in one["values"]}


def check(zygote: Zygote, home: Path, jobs: list[dict[str, Any]], tolerance: float = NEAR) -> dict[str, Any]:
    """Train both ways and compare; what the two processes gave."""
    one = zygote.call("tests.cpu.jobs:train", job=jobs[0], home=str(home / "one"))
    two = zygote.call("tests.worlds:train", job=jobs[1], home=str(home / "two"))
    assert one["code"] == 0 and two["codes"] == [0, 0], two["errors"]
    assert near(one["losses"], two["losses"], tolerance), (one["losses"], two["losses"])
    assert near(norms_of(one), two["norms"], tolerance), (norms_of(one), two["norms"])
    models = [f"{done['run']}/model" for done in (one, two)]
    # Adam divides by the size of a gradient: where that is next to nothing, so is what decides the sign of a step.
    assert zygote.call("tests.worlds:farthest", one=models[0], other=models[1]) < 100 * tolerance
    return dict(two)


@pytest.mark.parametrize(("stage", "method"), QUICK)
def test_two_processes_are_one_with_twice_the_accumulation(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    two = check(zygote, home, both(stage, method, tiny, tmp_path, TWO))
    assert two["outcomes"] == ["done", "done"]
    assert [two["events"].count(name) for name in ("ready", "start", "done")] == [1, 1, 1], (
        "only the first tells"
    )
    assert two["events"].count("metric") == 3


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "method"), OTHERS)
def test_so_they_are_in_every_other_stage(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    # kto's reference point is a mean over the rows of all processes at once, which one process sees in two halves.
    check(zygote, home, both(stage, method, tiny, tmp_path, TWO), 0.03 if stage == "kto" else NEAR)


@pytest.mark.slow
def test_each_process_has_rows_of_its_own(zygote: Zygote, tiny: str, home: Path, tmp_path: Path) -> None:
    """The comparison above could see it if both had the same: then the second would change nothing."""
    one, two = both("sft", "full", tiny, tmp_path, TWO)
    half = {**one, "train": {**one["train"], "gradient_accumulation": 1}}
    alone = zygote.call("tests.cpu.jobs:train", job=half, home=str(home / "one"))
    together = zygote.call("tests.worlds:train", job=two, home=str(home / "two"))
    assert not near(alone["losses"], together["losses"], 100 * NEAR)


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        ("grpo", "full"),
        pytest.param("grpo", "lora", marks=pytest.mark.slow),
        pytest.param("rloo", "full", marks=pytest.mark.slow),
        pytest.param("rloo", "lora", marks=pytest.mark.slow),
    ],
)
def test_groups_of_answers_may_lie_across_processes(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    """With the same answers drawn, rewards are compared within whole groups, wherever their answers were made."""
    jobs = both(stage, method, tiny, tmp_path, TWO)
    for job in jobs:
        job["stage"] = {"name": stage, "num_generations": 4, "max_completion_length": 8, "beta": 0.04}
        job["rewards"] = [LONG]
        job["train"] |= {"padding_free": False, "fused": False}
    one = zygote.call("tests.worlds:alone_with_same_answers", job=jobs[0], home=str(home / "one"))
    two = zygote.call("tests.worlds:train", job=jobs[1], home=str(home / "two"), same_answers=True)
    assert one["code"] == 0 and two["codes"] == [0, 0], two["errors"]
    assert near(one["rewards"], two["rewards"]) and len(set(two["rewards"].values())) > 1
    assert near(norms_of(one), two["norms"], 1e-3), (norms_of(one), two["norms"])
    assert near(one["losses"], two["losses"], 1e-3), (one["losses"], two["losses"])


def test_a_stop_takes_both_at_the_same_step_and_a_resumed_run_is_the_one_that_was_never_stopped(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", chats(50))
    lora = {"name": "lora", "rank": 8, "alpha": 16, "dropout": 0.2}
    job = test_sft.job(tiny, data, method=lora, hardware=TWO, train={"gradient_accumulation": 1})
    through = zygote.call("tests.worlds:train", job=job, home=str(home / "through"))
    assert through["codes"] == [0, 0] and len(through["losses"]) == 6
    folder = zygote.call("tests.cpu.jobs:submit", job=job, home=str(home / "stopped"))
    stopped = zygote.call("tests.worlds:work", run_dir=folder, stop_at=3)
    assert stopped["outcomes"] == ["stopped", "stopped"], "only the second one was asked"
    run = Run(Path(folder))
    assert [path.name for path in checkpoints.complete(run)] == ["checkpoint-3"] and not run.model.exists()
    next_attempt(run, 2)
    resumed = zygote.call("tests.worlds:work", run_dir=folder)
    assert resumed["codes"] == [0, 0] and resumed["losses"] == through["losses"]
    assert resumed["counts"] == through["counts"]
    assert zygote.call("tests.worlds:farthest", one=f"{folder}/model", other=f"{through['run']}/model") == 0


def test_a_process_started_by_itself_refuses_the_work_of_two(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    _, two = both("sft", "full", tiny, tmp_path, TWO)
    done = zygote.call("tests.cpu.jobs:train", job=two, home=str(home))
    assert done["code"] == 2 and done["events"][-1]["code"] == "other_processes"
