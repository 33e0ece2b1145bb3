"""Without padding the numbers stay: losses of every trainer, on and off, for every kind of model that can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_online, test_preference, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote


def both_ways(zygote: Zygote, home: Path, asked: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Losses of a job without padding and with it; the log must say that it was really skipped."""
    losses = []
    for skip in (True, False):
        asked["train"]["padding_free"] = skip
        done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
        assert done["code"] == 0, done["events"][-1]
        assert done["padding_free"] is skip
        losses.append(list(done["losses"].values()))
    return losses[0], losses[1]


@pytest.mark.parametrize(
    "method", ["full", {"name": "lora", "rank": 8, "dropout": 0.0}], ids=["full", "lora"]
)
@pytest.mark.parametrize("stage", ["sft", *test_preference.STAGES])
def test_losses_are_the_same_with_and_without_padding(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: Any
) -> None:
    if stage == "sft":
        asked = test_sft.job(tiny, write_rows(tmp_path / "rows.jsonl", chats(50)), method=method)
    else:
        template = tmp_path / "tight.jinja"
        template.write_text(TIGHT, "utf-8")
        rows = write_rows(tmp_path / "rows.jsonl", test_preference.rows_of(stage, 44))
        asked = test_preference.job(tiny, rows, test_preference.STAGES[stage], str(template), method=method)
    ours, theirs = both_ways(zygote, home, asked)
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("stage", ["grpo", "rloo"])
def test_the_first_step_of_a_stage_that_samples_is_the_same(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", test_online.prompts(20))
    asked = test_online.job(tiny, rows, {"name": stage}, method="full")
    steps = []
    for skip in (True, False):
        asked["train"] |= {"padding_free": skip, "max_steps": 1}
        done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
        assert done["code"] == 0, done["events"][-1]
        assert done["padding_free"] is skip and test_online.taught(done)
        names = ("loss", "grad_norm", "reward/mean", "reward/std", "kl")
        steps.append([test_online.metrics(done, name)[0] for name in names])
    assert steps[0] == pytest.approx(steps[1], rel=1e-4, abs=1e-6)


def test_gradient_checkpointing_recomputes_the_same_rows(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(50))
    asked = test_sft.job(tiny, rows, method="full", train={"gradient_checkpointing": True})
    ours, theirs = both_ways(zygote, home, asked)
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(
    "architecture",
    ["Llama", "Qwen3", "Mistral", "Gemma2", "GPT2", "Phi3", "OPT", "GPTNeoX", "Mixtral", "Qwen3Moe"],
)
def test_an_architecture_gives_the_same_states_or_is_left_as_it_was(
    zygote: Zygote, architecture: str
) -> None:
    seen = zygote.call("tests.cpu.jobs:states_without_padding", architecture=architecture)
    assert seen["difference"] < 1e-4
    assert seen["experts"] is (architecture in ("Mixtral", "Qwen3Moe"))
    if architecture in ("Llama", "Qwen3", "Mistral", "Phi3", "Mixtral", "Qwen3Moe"):
        assert seen["reason"] is None


def test_rows_longer_than_a_sliding_window_are_left_padded(zygote: Zygote) -> None:
    seen = zygote.call("tests.cpu.jobs:states_without_padding", architecture="Mistral", window=4)
    assert seen["difference"] < 1e-4


def test_a_saved_model_does_not_know_of_it(zygote: Zygote, tiny: str, home: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(20))
    done = zygote.call("tests.cpu.jobs:train", job=test_sft.job(tiny, rows, method="full"), home=str(home))
    assert "sdpa_by_row" not in (Path(done["run"]) / "model" / "config.json").read_text("utf-8")
