"""Rewards written out for an ejected training score as ours do, odd answers included, and import nothing of ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.rewards import Setting, build_scorers, reward_functions, reward_module
from core.training import eject_rewards
from tests.loops import in_a_thread

ANSWERS = [
    "",
    "42",
    "The answer is 1,000.50",
    "<think>so</think><answer>42</answer>",
    "<think>a</think> \\boxed{\\frac{84}{2}}",
    "<answer>B</answer>",
    "Option (b), because.",
    "answer: Paris.",
    "PARIS",
    '{"a": 1, "b": NaN}',
    'Here:\n```json\n{"a": [1]}\n```',
    "[" * 20_000,
    "go go go go go",
    "wörter ohne ende " * 200,
    "3/4",
    "0.75 or \\boxed{7",
    "<think>one</think><think>two</think> 5",
    [{"role": "assistant", "content": "#### 42"}],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": [{"type": "text", "text": "42"}, {"type": "image"}]}],
]
WANTED = [
    "42", "1000.5", 42, ["41", "42"], "42", "B", 1, "Paris", "paris", None, "", "nothing", "go", "x",
    "\\frac{3}{4}", "0.75", "5", "42", "42", "$42$",
]  # fmt: skip
CHOICES = ["London", "Paris", "Rome"]
FILE = """
import asyncio

async def reward(completions, answers, prompt, bonus=1.0):
    await asyncio.sleep(0)
    rows = zip(completions, answers, prompt)
    return [None if answer is None else len(text) + len(p) + bonus for text, answer, p in rows]
"""
OPEN = "def reward(prompts, **columns):\n    return [float(len(''.join(sorted(columns)))) for _ in prompts]\n"
REWARDS: list[dict[str, Any]] = [
    {"name": "accuracy"},
    {"name": "accuracy", "look_in": "boxed"},
    {"name": "accuracy", "mode": "number", "weight": 2.0},
    {"name": "accuracy", "mode": "number", "tolerance": 0.3, "look_in": "last_line", "tasks": ["odd"]},
    {"name": "accuracy", "mode": "exact"},
    {"name": "accuracy", "mode": "exact", "case_sensitive": True, "look_in": "answer_tag"},
    {"name": "accuracy", "mode": "multiple_choice"},
    {"name": "format"},
    {"name": "format", "pattern": "paris|B$", "match": "anywhere", "ignore_case": True, "weight": -0.5},
    {"name": "think_tags"},
    {"name": "think_tags", "partial": True},
    {"name": "json_valid"},
    {"name": "json_valid", "keys": ["a"]},
    {"name": "json_valid", "fenced": False},
    {"name": "repetition"},
    {"name": "repetition", "run": 1, "unit": "characters"},
    {"name": "length", "longest": 3, "fade": 0},
    {"name": "length", "unit": "characters", "shortest": 5, "longest": 40, "fade": 7},
    {"name": "file", "script": "quality"},
    {"name": "file", "script": "open.py", "tasks": ["even"]},
]


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every reward that can be written out, in its odd settings too."""
    folder = tmp_path / "own"
    folder.mkdir(mode=0o755)
    for name, text in (("quality", FILE), ("open", OPEN)):
        (folder / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.setenv("FACTORY_REWARDS_DIR", str(folder))
    return [reward_module(one["name"]).Spec.model_validate(one) for one in REWARDS]


@pytest.fixture
def theirs(specs: list[Any], tmp_path: Path) -> Iterator[ModuleType]:
    """rewards.py, run by itself."""
    text = eject_rewards.rewards_text(specs)
    module, before = ModuleType("rewards"), list(sys.path)
    exec(compile(text, str(tmp_path / "rewards.py"), "exec"), module.__dict__)
    yield module
    sys.path[:] = before
    for name in ("own_quality", "own_open"):
        sys.modules.pop(name, None)


def test_they_score_as_ours_do(specs: list[Any], theirs: ModuleType, tmp_path: Path) -> None:
    told: list[Any] = []
    scorers = build_scorers(specs, Setting(tmp_path, told.append, log=False))
    rows = [
        {"answer": answer, "task": ("even", "odd")[place % 2], "choices": CHOICES if place % 3 else None}
        for place, answer in enumerate(WANTED)
    ]
    asked = ["Which?" if place != 4 else "Begin: <think>" for place in range(len(rows))]
    batch = {
        "prompts": [[{"role": "user", "content": one}] for one in asked],
        "completions": ANSWERS,
        "completion_ids": [[1]] * len(rows),
        "extra": [json.dumps(row) for row in rows],
        "trainer_state": object(),
    }
    names = eject_rewards.functions(specs)
    assert len(ANSWERS) == len(WANTED) and len(set(names)) == len(REWARDS)
    different = {}
    for name, own, spec in zip(names, reward_functions(scorers), specs, strict=True):
        scores = own(**batch)
        assert name == f"reward_{own.__name__}"
        written = getattr(theirs, name)
        # The user's runs a loop of its own; mathematics would not run in a thread.
        made = in_a_thread(written, **batch) if spec.name == "file" else written(**batch)
        if made != scores:
            different[name] = (scores, made)
        assert len(set(scores)) > 1 or name in ("reward_open",), (name, scores)
    assert different == {}


def test_the_file_holds_what_its_rewards_need_and_nothing_of_ours(specs: list[Any]) -> None:
    (short,) = (one for one in specs if one.name == "think_tags" and one.partial)
    text = eject_rewards.rewards_text([short])
    assert "regex" not in text and "math_verify" not in text and len(text.splitlines()) < 90
    whole = eject_rewards.rewards_text(specs)
    assert "import core" not in whole and "from core" not in whole and "from data" not in whole
    assert eject_rewards.packages([short]) == [] and eject_rewards.packages(specs) == [
        "math-verify",
        "latex2sympy2_extended",
        "regex",
    ]


def test_what_is_more_than_a_few_functions_is_named() -> None:
    asked = [{"name": "judge"}, {"name": "code"}, {"name": "accuracy", "mode": "gym"}, {"name": "length"}]
    specs = [reward_module(one["name"]).Spec.model_construct(**one) for one in asked]
    assert eject_rewards.foreign(specs) == ["judge", "code", "accuracy of mode gym"]
