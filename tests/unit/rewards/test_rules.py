"""Rewards that are rules over the text alone: right values, and no text that makes them fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rewards import REWARDS, Setting, answers
from core.rewards.base import completion_text

RULES = ("think_tags", "length", "repetition", "json_valid")


def accuracy(bench, mode, completion, answer, **more):
    settings = {"name": "accuracy", "mode": mode, **{k: v for k, v in more.items() if k != "choices"}}
    columns = {"choices": [more["choices"]]} if "choices" in more else {}
    return bench.score(settings, [completion], answer=[answer], **columns)[0]


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("the sum is 12", "12", 1.0),
        ("the sum is 12.", 12, 1.0),
        ("first 12, then 13", "12", 0.0),
        ("<answer>12</answer> or 13", "12", 1.0),
        ("<answer>\\boxed{12}</answer>", "12", 1.0),
        ("<think>it is 5</think> 12", "12", 1.0),
        ("so \\boxed{1,234.5} it is, as 7 said", "1234.5", 1.0),
        ("-3", "3", 0.0),
        ("minus: -3", "-3", 1.0),
        ("3/4", "0.75", 1.0),
        ("0.750000001", "3/4", 1.0),
        ("1e3", "1000", 1.0),
        ("72", "Half of 144 is 144/2 = 72\n#### 72", 1.0),
        ("no number", "72", 0.0),
        ("", "72", 0.0),
        ("12", ["7", "12"], 1.0),
        ("12", None, None),
        ("12", "", None),
        ("12", "twelve", None),
        ("9" * 400, "1", 0.0),
        ("1e9999", "1", 0.0),
    ],
)
def test_a_number_is_right_when_it_is_the_same_number(bench, completion, answer, score):
    assert accuracy(bench, "number", completion, answer) == score


def test_the_tolerance_of_numbers_can_be_set(bench):
    assert accuracy(bench, "number", "3.14", "3.14159") == 0.0
    assert accuracy(bench, "number", "3.14", "3.14159", tolerance=0.001) == 1.0


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("Oslo", "oslo", 1.0),
        ('  "Oslo".  ', "Oslo", 1.0),
        ("It is Oslo", "Oslo", 0.0),
        ("<answer>It  is\nOslo</answer>", "it is Oslo", 1.0),
        ("ﬁne", "fine", 1.0),
        ("", "Oslo", 0.0),
        ("Oslo", None, None),
        ("Bergen", ["Oslo", "Bergen"], 1.0),
    ],
)
def test_an_exact_answer_is_the_same_text(bench, completion, answer, score):
    assert accuracy(bench, "exact", completion, answer) == score


def test_case_counts_when_asked_for(bench):
    assert accuracy(bench, "exact", "oslo", "Oslo", case_sensitive=True) == 0.0


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("B", "B", 1.0),
        ("(B)", "B", 1.0),
        ("B. because", "(B)", 1.0),
        ("**B**", "B", 1.0),
        ("The answer is C, not B", "C", 1.0),
        ("The correct answer is: (D)", "D", 1.0),
        ("\\boxed{A}", "A", 1.0),
        ("A dog", "A", 0.0),
        ("either (A) or (B)", "B", 1.0),
        ("", "B", 0.0),
        ("B", "forty", None),
        ("B", 1, None),
    ],
)
def test_a_choice_is_right_when_it_is_the_same_letter(bench, completion, answer, score):
    assert accuracy(bench, "multiple_choice", completion, answer) == score


def test_with_the_choices_an_index_and_a_text_are_understood(bench):
    choices = ["red", "green", "blue"]
    assert accuracy(bench, "multiple_choice", "B", 1, choices=choices) == 1.0
    assert accuracy(bench, "multiple_choice", "Green.", "B", choices=choices) == 1.0
    assert accuracy(bench, "multiple_choice", "blue", "green", choices=choices) == 0.0
    assert accuracy(bench, "multiple_choice", "(C)", "blue", choices={"text": choices}) == 1.0


@pytest.mark.parametrize(
    ("look_in", "part"),
    [("auto", "3"), ("text", "1 \\boxed{2} <answer>3</answer>\n4"), ("answer_tag", "3"), ("boxed", "2")],
)
def test_where_to_look_decides_which_part_answers(look_in, part):
    assert answers.final_answer("1 \\boxed{2} <answer>3</answer>\n4", look_in) == part


def test_a_missing_mark_is_a_wrong_answer(bench):
    assert accuracy(bench, "number", "12", "12", look_in="boxed") == 0.0
    assert accuracy(bench, "number", "1\n12", "12", look_in="last_line") == 1.0
    assert answers.boxed("\\boxed{a{b}c}") == "a{b}c"
    assert answers.boxed("\\boxed{a{b}") is None


@pytest.mark.parametrize(
    ("completion", "score", "partial"),
    [
        ("<think>two and two</think>4", 1.0, 1.0),
        ("  <think>two and two</think>\n4", 1.0, 1.0),
        ("<think></think>4", 0.0, 0.5),
        ("<think>two</think>", 0.0, 0.5),
        ("so <think>two</think>4", 0.0, 0.5),
        ("</think>two<think>4", 0.0, 0.5),
        ("<think>two<think>two</think>4", 0.0, 0.5),
        ("<think>two", 0.0, 0.5),
        ("4", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_thinking_stands_in_tags_before_the_answer(bench, completion, score, partial):
    assert bench.score("think_tags", [completion]) == [score]
    assert bench.score({"name": "think_tags", "partial": True}, [completion]) == [partial]


def test_thinking_tags_can_have_other_names(bench):
    reward = {"name": "think_tags", "opening": "[why]", "closing": "[/why]"}
    assert bench.score(reward, ["[why]two[/why]4", "<think>two</think>4"]) == [1.0, 0.0]


def test_a_dot_is_any_character_or_any_but_the_end_of_a_line(bench):
    reward = {"name": "format", "pattern": "a.b"}
    assert bench.score(reward, ["a\nb", "a b"]) == [1.0, 1.0]
    assert bench.score({**reward, "dot_matches_newline": False}, ["a\nb", "a b"]) == [0.0, 1.0]


def test_a_prompt_that_opens_the_tag_counts_as_its_opening(bench):
    assert bench.score("think_tags", ["two</think>4"], prompt=["2+2?\n<think>\n"]) == [1.0]


def test_length_falls_from_nothing_to_minus_one_beyond_its_bounds(bench):
    words = [" ".join(["w"] * count) for count in (0, 1, 2, 4, 5, 6, 8, 9)]
    reward = {"name": "length", "shortest": 2, "longest": 4, "fade": 4}
    assert bench.score(reward, words) == [-0.5, -0.25, 0, 0, -0.25, -0.5, -1, -1]
    assert bench.score({**reward, "fade": 0}, words) == [-1, -1, 0, 0, -1, -1, -1, -1]
    assert bench.score({"name": "length", "unit": "characters", "longest": 3, "fade": 2}, ["三座桥石"]) == [
        -0.5
    ]


def test_repetition_is_minus_the_share_of_repeated_runs(bench):
    texts = ["a b c d e", "a b c a b c", "a a a a a", "a b", ""]
    assert bench.score("repetition", texts) == [0.0, pytest.approx(-0.25), pytest.approx(-2 / 3), 0.0, 0.0]
    assert bench.score({"name": "repetition", "run": 1, "unit": "characters"}, ["石石石石"]) == [-0.75]


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ('{"name": 1}', 1.0),
        ("[1, 2]", 1.0),
        ("7", 1.0),
        ('Here:\n```json\n{"name": 1}\n```\nDone', 1.0),
        ('Here: {"name": 1}', 0.0),
        ("{'name': 1}", 0.0),
        ('{"name": NaN}', 0.0),
        ("", 0.0),
        ("[" * 100_000, 0.0),
    ],
)
def test_json_is_json(bench, completion, score):
    assert bench.score("json_valid", [completion]) == [score]


def test_json_can_need_keys(bench):
    reward = {"name": "json_valid", "keys": ["name", "age"]}
    assert bench.score(reward, ['{"name": 1, "age": 2}', '{"name": 1}', "[1]"]) == [1.0, 0.0, 0.0]


@given(text=st.text(max_size=300), column=st.one_of(st.none(), st.text(max_size=40), st.integers()))
def test_no_text_makes_a_rule_fail_or_leave_its_range(text, column):
    told = []
    setting = Setting(home=None, emit=told.append, environ={})
    modules = {module.Spec.model_fields["name"].default: module for module in REWARDS}
    for name in RULES:
        (score,) = modules[name].scorer(modules[name].Spec(), setting)([text], {"prompt": [text]})
        assert -1.0 <= score <= 1.0
    for mode in ("number", "exact", "multiple_choice"):
        spec = modules["accuracy"].Spec(mode=mode)
        assert modules["accuracy"].scorer(spec, setting)([text], {"answer": [column]})[0] in (None, 0.0, 1.0)
    assert told == []


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=4)))
def test_what_json_writes_is_valid_json(value):
    setting = Setting(home=None, emit=print, environ={})
    module = next(module for module in REWARDS if module.__name__.endswith("json_valid"))
    assert module.scorer(module.Spec(fenced=False), setting)([json.dumps(value)], {}) == [1.0]


def test_case_110_a_chat_completion_is_scored_as_its_text():
    chat = [{"role": "assistant", "content": "12 is it"}]
    assert completion_text(chat) == completion_text("12 is it") == "12 is it"
    assert completion_text([{"role": "assistant", "content": [{"type": "text", "text": "12"}]}]) == "12"
    assert completion_text([{"role": "assistant", "content": None}]) == ""
