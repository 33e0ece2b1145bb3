"""Answers before and after training: prompts of the data, answered together as each would be alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cpu import test_sft
from tests.cpu.conftest import chats, write_rows
from tests.zygote import Zygote


def test_prompts_answered_together_get_the_answers_they_get_alone(zygote: Zygote, tiny: str) -> None:
    prompts = [
        "Hi?",
        "What is 1 and 1?",
        "Tell me everything about boats, lamps and the sea at night.",
        "Hi?",
    ]
    told = zygote.call("tests.cpu.jobs:answers", model=tiny, prompts=prompts)
    assert told["together"] == told["alone"] and told["together"][0] == told["together"][3]
    assert told["in_batches"] == told["alone"] and told["longest_batch"] == 1


def test_a_run_asks_ten_prompts_of_its_data_and_three_of_them_on_the_way(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path
) -> None:
    job: dict[str, Any] = test_sft.job(
        tiny,
        write_rows(tmp_path / "rows.jsonl", chats(24)),
        train={"max_steps": 1},
        evaluate={"every": 1, "max_new_tokens": 2},
    )
    done = zygote.call("tests.cpu.jobs:train", job=job, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    asked = {
        kind: [one["prompt"] for one in done["events"] if one["event"] == "sample" and one["kind"] == kind]
        for kind in ("before", "during", "after")
    }
    assert len(set(asked["before"])) == 10 and asked["after"] == asked["before"]
    assert asked["during"] == asked["before"][:3]
