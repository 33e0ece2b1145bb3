"""Answers sampled for the reward bench: as many as asked for, different ones, the same again with the same seed."""

from __future__ import annotations


def test_answers_are_sampled_in_groups_and_repeat_with_the_seed(zygote, tiny, home):
    job = {"model": tiny, "data": "rows.jsonl", "stage": "grpo", "rewards": ["length"]}
    asked = {"job": job, "home": str(home), "prompts": ["One?", [{"role": "user", "content": "Two?"}]]}
    first = zygote.call("tests.cpu.jobs:sampled", **asked, count=3, tokens=6)
    assert [len(group) for group in first] == [3, 3] and len({text for group in first for text in group}) > 3
    assert first == zygote.call("tests.cpu.jobs:sampled", **asked, count=3, tokens=6)
