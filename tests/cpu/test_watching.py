"""What is seen of a run while it goes on: the watchdog's end, answers on the way, trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_sft import job
from tests.zygote import Zygote


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A file of fifty chats."""
    return write_rows(tmp_path / "rows.jsonl", chats(50))


@pytest.mark.parametrize(("watched", "code"), [(True, 2), (False, 0)])
def test_a_loss_that_runs_away_ends_the_run_unless_nobody_watches(
    zygote: Zygote, tiny: str, home: Path, data: str, watched: bool, code: int
) -> None:
    asked = job(
        tiny, data, method="full", train={"max_steps": 14, "learning_rate": 1e-5, "watchdog": watched}
    )
    done = zygote.call("tests.cpu.jobs:train_with_wild_weights", job=asked, home=str(home), at_step=3)
    assert done["code"] == code, done["events"][-1]
    if watched:
        assert done["events"][-1]["code"] == "loss_diverged"
        assert "train.learning_rate" in done["events"][-1]["message"]


def test_answers_are_shown_every_so_many_steps(zygote: Zygote, tiny: str, home: Path, data: str) -> None:
    asked = job(tiny, data, evaluate={"prompts": ["What is 1 and 1?"], "max_new_tokens": 4, "every": 2})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    shown = [(event["step"], event["kind"]) for event in done["events"] if event["event"] == "sample"]
    assert shown == [(2, "during"), (4, "during"), (6, "during"), (0, "before"), (6, "after")]
    plain = zygote.call("tests.cpu.jobs:train", job=job(tiny, data), home=str(home))
    assert plain["losses"] == done["losses"]


def test_metrics_also_go_to_tensorboard(zygote: Zygote, tiny: str, home: Path, data: str) -> None:
    done = zygote.call("tests.cpu.jobs:train", job=job(tiny, data, report_to=["tensorboard"]), home=str(home))
    assert done["code"] == 0, done["events"][-1]
    written = zygote.call("tests.cpu.jobs:tensorboard_losses", folder=f"{done['run']}/tensorboard")
    assert list(written.values()) == pytest.approx(list(done["losses"].values()), rel=1e-6)
