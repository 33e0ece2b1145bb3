"""Fewer passes, the same numbers: the loss at the head and the layers with LoRA, alone and in every trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_online, test_preference, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

LORA = {"name": "lora", "rank": 8, "dropout": 0.0}


def both_ways(
    zygote: Zygote, home: Path, asked: dict[str, Any], names: tuple[str, ...] = ("loss",)
) -> tuple[list[float], list[float]]:
    """Metrics of a job with fused passes and without; what ran must be what was asked for."""
    losses = []
    for fused in (True, False):
        asked["train"]["fused"] = fused
        done = zygote.call("tests.cpu.jobs_fused:train_counting", job=asked, home=str(home))
        assert done["code"] == 0, done["events"][-1]
        uses_head = asked["stage"] == "sft" or asked["stage"]["name"] == "pretrain"
        assert (done["heads"] > 0) is (fused and uses_head)
        assert (done["layers"] > 0) is (fused and asked["method"] != "full")
        answers = asked["stage"] != "sft" and asked["stage"]["name"] in ("grpo", "rloo")
        assert (len(done["prompts"]) > 0) is (fused and answers)
        assert not answers or test_online.taught(done)
        losses.append([value for name in names for value in test_online.metrics_of(done, name)])
    return losses[0], losses[1]


@pytest.mark.parametrize("method", ["full", LORA], ids=["full", "lora"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_sft_has_the_same_losses(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, method: Any, checkpointing: bool
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(50))
    asked = test_sft.job(tiny, rows, method=method, train={"gradient_checkpointing": checkpointing})
    ours, theirs = both_ways(zygote, home, asked)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert len(ours) == 6


def test_packed_pretraining_has_the_same_losses(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    texts = [{"text": f"{n} boats cross the bay " * (1 + n % 9)} for n in range(60)]
    data = write_rows(tmp_path / "rows.jsonl", texts)
    asked = test_sft.job(tiny, data, stage={"name": "pretrain", "max_length": 64}, method="full")
    asked["train"] |= {"max_steps": 5, "gradient_accumulation": 1}
    ours, theirs = both_ways(zygote, home, asked)
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("stage", test_preference.STAGES)
def test_preference_stages_have_the_same_losses_with_lora(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    template = tmp_path / "tight.jinja"
    template.write_text(TIGHT, "utf-8")
    rows = write_rows(tmp_path / "rows.jsonl", test_preference.rows_of(stage, 44))
    asked = test_preference.job(tiny, rows, test_preference.STAGES[stage], str(template), method=LORA)
    ours, theirs = both_ways(zygote, home, asked)
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("stage", ["grpo", "rloo"])
def test_stages_that_sample_draw_the_same_answers_with_lora(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", test_online.prompts(20))
    asked = test_online.job(tiny, rows, {"name": stage}, method=LORA, train={"max_steps": 2})
    names = ("loss", "grad_norm", "reward/mean", "reward/std", "length/mean")
    ours, theirs = both_ways(zygote, home, asked, names)
    assert len(ours) == 2 * len(names) and ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("architecture", ["Llama", "Qwen3", "Mistral", "Gemma2", "GPT2", "Phi3"])
def test_prompts_read_once_get_the_same_answers(zygote: Zygote, architecture: str, sample: bool) -> None:
    seen = zygote.call("tests.cpu.jobs_fused:answers_both_ways", architecture=architecture, sample=sample)
    assert seen == {"same": True, "reason": None}


def test_a_model_without_such_a_cache_generates_as_before(zygote: Zygote) -> None:
    seen = zygote.call("tests.cpu.jobs_fused:answers_both_ways", architecture="Mamba", sample=True)
    assert seen["same"]
    assert seen["reason"] is not None


@pytest.mark.parametrize(
    ("rows", "copies"),
    [
        ([[1, 2]] * 4, 4),
        ([[1, 2]] * 4 + [[3, 4]] * 2, 2),
        ([[1, 2], [3, 4], [1, 2], [3, 4]], 1),
        ([[1, 2]] * 3 + [[3, 4]] * 2, 1),
    ],
)
def test_only_neighbours_count_as_copies(zygote: Zygote, rows: list[list[int]], copies: int) -> None:
    assert zygote.call("tests.cpu.jobs_fused:copies", rows=rows) == copies


@pytest.mark.parametrize("size", [3, 256, 700])
def test_the_loss_is_as_exact_as_the_librarys(zygote: Zygote, size: int) -> None:
    """Against float64: loss, gradients, right guesses and entropy, with prompts and padding left out."""
    seen = zygote.call("tests.cpu.jobs_fused:head_losses", tokens=size)
    for name, (exact, library, ours) in seen.items():
        assert ours == pytest.approx(exact, rel=1e-5, abs=1e-5), name
        assert ours == pytest.approx(library, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize(
    ("architecture", "times"),
    [("Llama", 1), ("Qwen3", 1), ("Mistral", 1), ("GPT2", 1), ("Phi3", 1), ("Cohere", 0), ("Gemma2", 0)],
)
def test_each_kind_of_model_has_the_same_loss_and_gradients(
    zygote: Zygote, architecture: str, times: int
) -> None:
    """Cohere scales its logits and Gemma 2 caps them: those heads stay with the library."""
    seen = zygote.call("tests.cpu.jobs_fused:head_of", architecture=architecture)
    assert seen["used"] == times
    assert seen["ours"] == pytest.approx(seen["theirs"], rel=1e-6)
    assert seen["gradients"] < 1e-6


def test_what_the_loss_cannot_take_goes_to_the_library(zygote: Zygote) -> None:
    assert zygote.call("tests.cpu.jobs_fused:head_losses_left_to_the_library") == {
        "soft cap": 1,
        "scale": 1,
        "bias": 1,
        "no gradient": 1,
        "nothing trained": 1,
        "bfloat16": 1,
        "plain": 0,
    }


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_gives_pefts_output_and_gradients(zygote: Zygote, bias: bool) -> None:
    seen = zygote.call("tests.cpu.jobs_fused:adapter_layers", settings={}, bias=bias)
    assert seen["installed"] == 1
    assert seen["used"] == 1
    assert len(seen["differences"]) == 5  # output, input, both matrices, and the layer without its adapter
    assert max(seen["differences"].values()) < 1e-5


@pytest.mark.parametrize("settings", [{"lora_dropout": 0.1}, {"use_dora": True}, {"lora_bias": True}])
def test_another_kind_of_adapter_is_left_to_peft(zygote: Zygote, settings: dict[str, Any]) -> None:
    seen = zygote.call("tests.cpu.jobs_fused:adapter_layers", settings=settings, bias=True)
    assert seen["used"] == 0
    assert max(seen["differences"].values()) == 0
