"""Each stage teaches what it is for: a full margin (over held-out rows, but for sft, which learns by heart) on four of
five seeds, and nothing at rate 0.

One seed runs by default, five with --slow.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_online, test_preference, test_pretrain, test_sft
from tests.cpu.conftest import write_rows
from tests.zygote import Zygote

SEEDS = (11, 22, 33, 44, 55)


def questions(count: int) -> list[dict[str, Any]]:
    """Questions with short answers that only learning by heart can give."""
    names = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gro", "Hal", "Ida", "Jon")
    places = ("mill", "quay", "tower", "bay", "inn", "lock", "fort")
    return [
        {
            "messages": [
                {"role": "user", "content": f"Where is {names[n % 10]} {n // 10}?"},
                {"role": "assistant", "content": f"At the {places[(n * 3) % 7]}."},
            ]
        }
        for n in range(count)
    ]


def sums(pairs: list[tuple[int, int]], shy: int = 0) -> list[dict[str, Any]]:
    """One-digit sums; a shy model also learns, so many times for each, to say that it does not know."""
    return [
        {"prompt": f"{a} + {b} =", "completion": completion, "answer": str(a + b)}
        for a, b in pairs
        for completion in (f" {a + b}", *[" no"] * shy)
    ]


ALL_SUMS = [(a, b) for a in range(6) for b in range(6)]
HELD_OUT = [(a, b) for a, b in ALL_SUMS if (a + 2 * b) % 4 == 0]
"""A quarter of the sums, which no reward is ever given for; every summand is also in the others."""
PRACTISED = [pair for pair in ALL_SUMS if pair not in HELD_OUT]


def sft_learns(zygote: Zygote, home: Path, folder: Path, tiny: str, seed: int, rate: float) -> bool:
    """Whether all of 20 seen questions are answered word for word."""
    rows = questions(20)
    train = {
        "max_steps": 300,
        "learning_rate": rate,
        "batch_size": 20,
        "gradient_accumulation": 1,
        "seed": seed,
    }
    asked = test_sft.job(
        tiny, write_rows(folder / "rows.jsonl", rows), method="full", train={**train, "scheduler": "cosine"}
    )
    asked["evaluate"] = {"prompts": [row["messages"][0]["content"] for row in rows], "max_new_tokens": 24}
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    answers = [
        event["answer"] for event in done["events"] if event["event"] == "sample" and event["kind"] == "after"
    ]
    return answers == [row["messages"][1]["content"] for row in rows]


def pretrain_learns(zygote: Zygote, home: Path, folder: Path, tiny: str, seed: int, rate: float) -> bool:
    """Whether held-out documents cost half of what they would by the frequency of their tokens alone."""
    held_out = test_pretrain.texts(67)[60:]
    data = {
        "path": write_rows(folder / "rows.jsonl", test_pretrain.texts(60)),
        "eval": write_rows(folder / "eval.jsonl", held_out),
    }
    train = {"max_steps": 80, "learning_rate": rate, "eval_steps": 80, "seed": seed}
    done = zygote.call("tests.cpu.jobs:train", job=test_pretrain.job(tiny, data, train=train), home=str(home))
    assert done["code"] == 0, done["events"][-1]
    alone = zygote.call("tests.cpu.test_pretrain:unigram_entropy", model=tiny, rows=held_out)
    return bool(done["eval_losses"]["80"] < alone / 2)


def preference_learns(
    zygote: Zygote, home: Path, folder: Path, tiny: str, seed: int, rate: float, stage: str
) -> bool:
    """Whether held-out pairs (thumbs) are told apart."""
    train = {
        "learning_rate": rate,
        "max_steps": 40,
        "eval_steps": 40,
        "gradient_accumulation": 1,
        "batch_size": 8,
    }
    data = {
        "path": write_rows(folder / "rows.jsonl", test_preference.rows_of(stage, 48)),
        "eval": write_rows(folder / "eval.jsonl", test_preference.rows_of(stage, 24, start=60)),
    }
    template = folder / "tight.jinja"
    template.write_text(test_preference.TIGHT, "utf-8")
    spec = test_preference.STAGES[stage]
    asked = test_preference.job(tiny, data, spec, str(template), method="full", train={**train, "seed": seed})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    records = [
        event["values"] for event in done["events"] if event["event"] == "metric" and event["step"] == 40
    ]
    return test_preference._learnt(
        stage, {name: value for record in records for name, value in record.items()}
    )


_shy_models: dict[tuple[str, int], str] = {}


def shy_model(zygote: Zygote, tiny: str, seed: int) -> str:
    """Folder of a model that knows all sums and says so one time in three; made once for each seed."""
    if (tiny, seed) not in _shy_models:
        folder = Path(tempfile.mkdtemp(dir=Path(tiny).parent))
        rows = [{**row, "answer": None} for row in sums(ALL_SUMS, shy=2)]
        train = {"max_steps": 250, "learning_rate": 5e-3, "batch_size": len(rows), "scheduler": "cosine"}
        asked = test_sft.job(
            tiny,
            write_rows(folder / "rows.jsonl", rows),
            method="full",
            train={**train, "gradient_accumulation": 1, "seed": seed},
        )
        asked["evaluate"] = {"prompts": [], "max_new_tokens": 2}
        done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(folder / "home"))
        assert done["code"] == 0, done["events"][-1]
        _shy_models[tiny, seed] = f"{done['run']}/model"
    return _shy_models[tiny, seed]


def sums_are_learnt(
    zygote: Zygote, home: Path, folder: Path, tiny: str, seed: int, rate: float, stage: str
) -> bool:
    """Whether the share of right answers to sums that were never rewarded rises by 0.3.

    The model has seen all sums before, as a language model has seen arithmetic, but says no two times in three: rewards
    for some sums teach it to answer, and that must carry over to the others.
    """
    base = shy_model(zygote, tiny, seed)
    rows = [{"prompt": row["prompt"], "answer": row["answer"]} for row in sums(PRACTISED)]
    data = {"path": write_rows(folder / "sums.jsonl", rows), "wrap": "plain"}
    train = {"max_steps": 60, "learning_rate": rate, "batch_size": 64, "gradient_accumulation": 1}
    asked = test_online.job(
        base,
        data,
        {"name": stage, "num_generations": 8, "max_completion_length": 4, "beta": 0.0},
        method="full",
        rewards=[{"name": "accuracy", "mode": "exact"}],
        train={**train, "seed": seed, "scheduler": "constant"},
    )
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    before, after = (
        zygote.call("tests.cpu.jobs:share_right", model=model, rows=sums(HELD_OUT), count=16, seed=seed)
        for model in (base, f"{done['run']}/model")
    )
    return bool(after - before > 0.3)


CASES: dict[str, tuple[Any, float]] = {
    "sft": (sft_learns, 5e-3),
    "pretrain": (pretrain_learns, 5e-3),
    **{
        stage: (lambda *place, stage=stage: preference_learns(*place, stage), 3e-3)
        for stage in ("reward", "dpo", "simpo", "kto", "orpo")
    },
    **{
        stage: (lambda *place, stage=stage: sums_are_learnt(*place, stage), 5e-4)
        for stage in ("grpo", "rloo")
    },
}


@pytest.mark.timeout(1200)  # of a machine that does other things besides
@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_stage_teaches_and_does_not_at_rate_zero(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    learns, rate = CASES[stage]
    assert learns(zygote, home, tmp_path, tiny, SEEDS[0], rate)
    assert not learns(zygote, home, tmp_path, tiny, SEEDS[0], 0.0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("stage", CASES)
def test_four_of_five_seeds_learn(zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str) -> None:
    learns, rate = CASES[stage]
    assert sum(learns(zygote, home, tmp_path, tiny, seed, rate) for seed in SEEDS) >= 4
    assert not learns(zygote, home, tmp_path, tiny, SEEDS[0], 0.0)
