"""Names, weights, tasks, and the check of every value that a reward gives."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.job.load import parse_job
from core.job.schema import field_help
from core.rewards import REWARDS, combine, missing_columns, reward_functions, reward_module, try_rewards
from core.rewards.groups import signal, spread
from core.rewards.scoring import Notices, columns_of
from data.errors import FactoryError, Finding

NUMBER = {"name": "accuracy", "mode": "number"}


def made_to(bench, scorer, **settings):
    """A reward of this bench with another function inside: what a faulty reward would do."""
    (one,) = bench.build({"name": "length", **settings})
    return replace(one, scorer=scorer)


def refused(one, completions=("a", "b"), **columns):
    with pytest.raises(FactoryError) as caught:
        one(list(completions), columns or {"prompt": ["first", "second"]})
    (finding,) = caught.value.findings
    assert "\n" not in finding.message and "Traceback" not in finding.message
    assert one.name in finding.message
    return finding


def test_every_reward_has_a_name_a_sentence_and_settings_with_help():
    for module in REWARDS:
        fields = module.Spec.model_fields
        assert reward_module(fields["name"].default) is module
        assert module.Spec.__doc__ and module.__doc__
        assert set(field_help(module.Spec)) >= set(fields), module.__name__


def test_names_are_told_apart_by_a_number(bench):
    names = [one.name for one in bench.build("length", "repetition", "length", "length")]
    assert names == ["length", "repetition", "length_2", "length_3"]


def test_weights_multiply_and_totals_add_up(bench):
    scorers = bench.build(
        {**NUMBER, "weight": 2.0}, {"name": "length", "longest": 1, "fade": 0, "weight": 0.5}
    )
    made = combine(scorers, ["4", "4 4", "5"], {"prompt": ["a", "b", "c"], "answer": ["4", "4", "4"]})
    assert made.scores == {"accuracy": [1.0, 1.0, 0.0], "length": [0.0, -1.0, 0.0]}
    assert made.totals == [2.0, 1.5, 0.0]
    assert bench.told == []


def test_a_row_gets_the_rewards_of_its_task(bench):
    scorers = bench.build({**NUMBER, "tasks": ["maths"]}, {"name": "json_valid", "tasks": ["api", "config"]})
    columns = {"prompt": ["a", "b", "c"], "task": ["maths", "api", "poem"], "answer": ["4", None, None]}
    made = combine(scorers, ["4", "{}", "roses"], columns)
    assert made.scores == {"accuracy": [1.0, None, None], "json_valid": [None, 1.0, None]}
    assert made.totals == [1.0, 1.0, None]
    (finding,) = bench.told
    assert (finding.code, finding.level) == ("reward_none_applies", "warning")
    assert "1 of 3" in finding.message and "prompt 'c'" in finding.message


def test_a_reward_sees_only_the_rows_of_its_task(bench):
    seen = []

    def watch(completions, columns):
        seen.append((list(completions), columns["answer"]))
        return [1.0] * len(completions)

    one = made_to(bench, watch, tasks=["x"])
    columns = {"task": ["y", "x", "y", "x"], "answer": [1, 2, 3, 4]}
    assert one(["a", "b", "c", "d"], columns) == [None, 1.0, None, 1.0]
    assert seen == [(["b", "d"], [2, 4])]
    assert one(["a"], {"task": ["y"], "answer": [1]}) == [None] and len(seen) == 1


def test_tasks_without_a_task_column_are_refused(bench):
    finding = refused(bench.build({"name": "length", "tasks": ["x"]})[0])
    assert (finding.code, finding.field) == ("reward_column_missing", "rewards[0]")
    assert "'task'" in finding.message and "there are: prompt" in finding.message


def test_missing_columns_are_found_before_anything_runs(bench):
    job = parse_job(
        '{"model": "smollm2-135m", "data": "x.jsonl", "stage": "sft", "rewards": ["length", "accuracy",'
        '{"name": "accuracy", "mode": "gym"}, {"name": "accuracy", "column": "solution", "tasks": ["a"]}]}'
    )
    found = missing_columns(job.rewards, ["prompt", "solution"])
    assert [(one.field, one.value) for one in found] == [
        ("rewards[1]", "answer"),
        ("rewards[2]", "task"),
        ("rewards[2]", "metadata"),
        ("rewards[3]", "task"),
    ]


def test_case_109_a_list_of_the_wrong_length_is_refused_with_both_numbers(bench):
    finding = refused(made_to(bench, lambda completions, columns: [1.0]))
    assert finding.code == "reward_wrong_length"
    assert "got 1 values for 2 answers" in finding.message


def test_case_109_none_is_allowed_and_a_row_that_has_nothing_else_is_told(bench):
    one = made_to(bench, lambda completions, columns: [None for _ in completions])
    assert one(["a", "b"], {"prompt": ["first", "second"]}) == [None, None]
    combine([one], ["a", "b"], {"prompt": ["first", "second"]})
    (finding,) = bench.told
    assert finding.code == "reward_none_applies" and "prompt 'first'" in finding.message


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        (math.nan, "reward_not_finite", "nan"),
        (math.inf, "reward_not_finite", "inf"),
        (10**400, "reward_not_finite", "inf"),
        ("1.0", "reward_not_a_number", "'1.0' (str)"),
        ([1.0], "reward_not_a_number", "'[1.0]' (list)"),
        (1j, "reward_not_a_number", "(complex)"),
    ],
)
def test_a_score_that_is_no_finite_number_is_refused_with_its_row(bench, value, code, said):
    finding = refused(made_to(bench, lambda completions, columns: [1, value]))
    assert finding.code == code
    assert said in finding.message and "row 2 of the batch, prompt 'second'" in finding.message


@pytest.mark.parametrize(
    ("result", "said"), [(None, "nothing"), (1.0, "1.0"), ({"a": 1}, "dict"), ("ab", "'ab'")]
)
def test_anything_but_a_list_is_refused(bench, result, said):
    finding = refused(made_to(bench, lambda completions, columns: result))
    assert finding.code == "reward_not_a_list" and said in finding.message


def test_truth_and_whole_numbers_are_numbers(bench):
    assert made_to(bench, lambda completions, columns: [True, 3])(["a", "b"], {}) == [1.0, 3.0]


def test_a_reward_that_raises_is_named_with_the_row_and_the_first_line(bench):
    def fails(completions, columns):
        if "bad" in completions:
            raise RuntimeError("cannot read it\nand much more")
        return [0.0] * len(completions)

    finding = refused(made_to(bench, fails), ["good", "bad"])
    assert finding.code == "reward_failed"
    assert "raised RuntimeError: cannot read it for row 2 of the batch, prompt 'second'" in finding.message
    assert "much more" not in finding.message


@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(), st.text(), st.booleans()), max_size=5))
def test_whatever_a_reward_returns_it_is_checked_numbers_or_a_refusal(result):
    from core.rewards.scoring import NamedScorer
    from tests.unit.rewards.conftest import Bench

    (one,) = Bench(home=None).build("length")
    faulty: NamedScorer = replace(one, scorer=lambda completions, columns: result)
    try:
        scores = faulty(["a", "b"], {"prompt": ["x", "y"]})
    except FactoryError as error:
        assert error.findings[0].code.startswith("reward_not") or "wrong_length" in error.findings[0].code
    else:
        assert len(scores) == 2 and all(one is None or math.isfinite(one) for one in scores)


def test_everything_wrong_with_several_rewards_is_told_at_once(bench):
    with pytest.raises(FactoryError) as caught:
        bench.build("code", "length", {"name": "format", "pattern": "("}, {"name": "file", "script": "mine"})
    told = [(one.field, one.code) for one in caught.value.findings]
    assert told == [
        ("rewards[0]", "code_not_allowed"),
        ("rewards[2].pattern", "bad_pattern"),
        ("rewards[3].script", "no_rewards_folder"),
    ]


def test_the_trial_tells_what_is_wrong_with_any_reward(bench):
    def raises(completions, columns):
        raise ValueError("no")

    rows = [{"prompt": f"{n}+1", "answer": str(n + 1), "extra": {"level": n}} for n in range(9)]
    seen = []

    def watches(completions, columns):
        seen.append((list(completions), columns))
        return [0.0] * len(completions)

    scorers = [made_to(bench, raises), made_to(bench, watches), made_to(bench, lambda c, columns: [1.0])]
    with pytest.raises(FactoryError) as caught:
        try_rewards(scorers, rows)
    assert [one.code for one in caught.value.findings] == ["reward_failed", "reward_wrong_length"]
    ((completions, columns),) = seen
    assert completions == ["1", "2", "3", "4"]
    assert columns["level"] == [0, 1, 2, 3] and columns["prompt"] == ["0+1", "1+1", "2+1", "3+1"]


def test_the_trial_uses_rows_of_the_rewards_own_task(bench):
    seen = []

    def watches(completions, columns):
        seen.append(columns["task"])
        return [0.0] * len(completions)

    rows = [{"prompt": "a", "task": "x"}] * 5 + [{"prompt": "b", "task": "y"}] * 2
    try_rewards([made_to(bench, watches, tasks=["y"])], rows)
    assert seen == [["y", "y"]]


def test_case_110_trainers_functions_get_chats_as_text_and_give_the_same_score(bench):
    (function,) = reward_functions(bench.build({"name": "format", "pattern": ".*[0-9]+.*"}))
    assert function.__name__ == "format"
    as_text = function(prompts=["say 12"], completions=["12 is it"], completion_ids=[[1]])
    chat = [{"role": "user", "content": "say 12"}]
    as_chat = function(
        prompts=[chat], completions=[[{"role": "assistant", "content": "12 is it"}]], completion_ids=[[1]]
    )
    assert as_text == as_chat == [1.0]


def test_trainers_functions_get_columns_and_no_trainer(bench):
    seen = []

    def watches(completions, columns):
        seen.append(columns)
        return [None]

    scorers = [made_to(bench, watches), *bench.build(NUMBER)]
    first, second = reward_functions(scorers)
    chat = [{"role": "user", "content": "2+2"}]
    call = {
        "prompts": [chat],
        "completions": ["4"],
        "completion_ids": [[1]],
        "trainer_state": object(),
        "log_metric": print,
        "extra": ['{"level": 3}'],
    }
    assert (first(**call, answer=["4"]), second(**call, answer=["4"])) == ([None], [1.0])
    assert seen == [{"answer": ["4"], "level": [3], "messages": [chat], "prompt": ["2+2"]}]
    assert bench.told == [], "one of the two applies"
    assert (first(**call, answer=[None]), second(**call, answer=[None])) == ([None], [None])
    assert [one.code for one in bench.told] == ["reward_none_applies"]


def test_columns_of_a_batch_leave_out_what_is_none():
    columns = columns_of(
        ["a", "b"], {"answer": ("1", "2"), "state": 3, "helper": [1], "completion_ids": [[1], [2]]}
    )
    assert columns == {"answer": ["1", "2"], "prompt": ["a", "b"]}


def test_a_warning_of_every_batch_is_told_the_1st_10th_and_100th_time():
    told = []
    notices = Notices(told.append)
    for _ in range(250):
        notices.tell(Finding("x", "It is so.", "warning", params={"reward": "a"}))
    notices.tell(Finding("x", "It is so.", "warning", params={"reward": "b"}))
    assert [one.params.get("times", 1) for one in told] == [1, 10, 100, 1]
    assert told[1].message == "It is so (batch 10 like this)."


def test_case_106_rewards_that_cancel_out_leave_no_signal(bench):
    scorers = bench.build(
        {"name": "length", "longest": 1, "fade": 10},
        {"name": "length", "longest": 1, "fade": 10, "weight": -1.0},
    )
    texts = ["a", "a b", "a b c", "a b c d"] * 2
    made = combine(scorers, texts, {"prompt": ["p"] * 8})
    assert len(set(made.scores["length"])) == 4, "each alone has a spread"
    assert signal(made.totals, 4).dead == 1.0
    assert signal(made.scores["length"], 4).dead == 0.0


def test_case_113_rounding_is_no_spread_and_advantages_stay_bounded():
    assert spread([0.35] * 8) == 0.0
    assert spread([0.1 + 0.2, 0.3, 0.3, 0.3]) == 0.0
    scores = [0.35] * 7 + [0.95]
    mean = sum(scores) / 8
    assert max(abs(score - mean) / spread(scores) for score in scores) < 10


def test_the_signal_of_groups_leaves_out_answers_without_a_score():
    found = signal([1.0, 0.0, None, 1.0, None, None], 2)
    assert (found.dead, found.mean) == (2 / 3, 2 / 3)
    with pytest.raises(ValueError, match="no whole groups"):
        signal([1.0, 2.0, 3.0], 2)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=16))
def test_no_advantage_is_larger_than_the_group_allows(scores):
    deviation = spread(scores)
    mean = math.fsum(scores) / len(scores)
    # The largest possible |x - mean| / std of n numbers is (n - 1) / sqrt(n) (Samuelson's inequality).
    most = (len(scores) - 1) / math.sqrt(len(scores))
    assert deviation == 0.0 or max(abs(x - mean) for x in scores) / deviation <= most * 1.001
