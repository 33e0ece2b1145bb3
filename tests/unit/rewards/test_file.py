"""A Python file of the user's own: the jail, the form, and every way in which it can go wrong."""

from __future__ import annotations

import os

import pytest

from core.job.load import parse_job
from core.rewards import combine, try_rewards
from data.errors import FactoryError

ROWS = [{"prompt": f"{n}+1", "answer": str(n + 1)} for n in range(8)]
COLUMNS = {"prompt": ["1+1", "2+1"], "answer": ["2", "3"]}


@pytest.fixture
def write(bench, tmp_path):
    """Puts a Python file into the operator's rewards folder."""
    folder = tmp_path / "rewards"
    folder.mkdir(mode=0o755)
    bench.environ["FACTORY_REWARDS_DIR"] = str(folder)

    def put(text, name="mine"):
        path = folder / f"{name}.py"
        path.write_text(text)
        path.chmod(0o644)
        return {"name": "file", "script": name}

    return put


def refusal(action):
    with pytest.raises(FactoryError) as caught:
        action()
    (finding,) = caught.value.findings
    assert "\n" not in finding.message and "Traceback" not in finding.message
    return finding


def test_a_function_gets_the_columns_it_asks_for(bench, write):
    reward = write(
        "def reward(completions, answer):\n    return [c == a for c, a in zip(completions, answer)]"
    )
    (one,) = bench.build(reward)
    assert one.name == "mine"
    assert one(["2", "2"], COLUMNS) == [1.0, 0.0]


@pytest.mark.parametrize(
    "text",
    [
        "def reward(completions, **columns): return [len(columns['answer'][0])] * len(completions)",
        "def reward(answer, completions): return [1] * 2",
        "def reward(answer): return [1] * len(answer)",
        "def reward(*, completions, prompt=None, level=3): return [1 for _ in completions]",
        "async def reward(completions, **columns): return [1 for _ in completions]",
        "reward = lambda completions, **columns: (1 for _ in completions) and (1, 1)",
        "import helper\ndef reward(completions): return [helper.ONE] * 2",
        "print('loud'); input\ndef reward(completions):\n    print('louder')\n    return [1, 1]",
        "import array\ndef reward(completions): return array.array('d', [1, 1])",
    ],
)
def test_every_right_form_is_accepted(bench, write, text):
    write("ONE = 1", "helper")
    (one,) = bench.build(write(text))
    assert one(["2", "2"], COLUMNS) == [1.0, 1.0]


def test_case_108_a_function_without_kwargs_gets_only_what_it_accepts(bench, write):
    (one,) = bench.build(write("def reward(prompts, completions):\n    return [1.0 for _ in completions]"))
    assert one(["2", "2"], COLUMNS) == [1.0, 1.0]


def test_case_108_an_unknown_parameter_is_named_before_the_run_with_the_right_form(bench, write):
    (one,) = bench.build(write("def reward(x, y):\n    return [0.0 for _ in y]"))
    finding = refusal(lambda: try_rewards([one], ROWS))
    assert finding.code == "reward_form"
    assert "parameter 'x'" in finding.message and "answer, completions, prompt" in finding.message
    assert "def reward(completions, **columns)" in finding.message


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("x = 1", "reward_form", "no function named reward"),
        ("reward = 1", "reward_form", "no function named reward"),
        ("def reward(): return []", "reward_form", "no parameters"),
        ("def reward(completions, /): return []", "reward_form", "by position only"),
        ("def reward(:", "reward_failed", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import nothing_like_it", "reward_failed", "No module named 'nothing_like_it' (line 1)"),
        ("\nraise ValueError('broken\\nand more')", "reward_failed", "ValueError: broken (line 2)"),
        ("import sys; sys.exit(3)", "reward_failed", "SystemExit: 3"),
        ("import os; os._exit(3)", "reward_failed", "exit code 3"),
    ],
)
def test_a_file_that_cannot_work_is_refused_before_the_run(bench, write, text, code, said):
    finding = refusal(lambda: bench.build(write(text)))
    assert (finding.code, finding.field) == (code, "rewards[0].script")
    assert said in finding.message


@pytest.mark.parametrize("text", ["while True: pass", "def reward(completions):\n    while True: pass"])
def test_a_file_that_hangs_is_refused(bench, write, text):
    reward = {**write(text), "start_seconds": 1.0}
    finding = refusal(lambda: try_rewards(bench.build(reward), ROWS))
    assert finding.code == "reward_hangs" and "start_seconds" in finding.message


def test_the_time_for_the_trial_is_short_unless_asked_otherwise():
    job = parse_job(
        '{"model":"smollm2-135m","data":"x","stage":"sft","rewards":[{"name":"file","script":"x"}]}'
    )
    assert job.rewards[0].start_seconds + 1 < 10


def test_a_function_that_hangs_later_stops_the_run_and_can_be_asked_again(bench, write):
    reward = write(
        "import time\ndef reward(completions):\n    time.sleep(60 * ('slow' in completions))\n    return [1]"
    )
    (one,) = bench.build({**reward, "seconds": 0.5})
    assert one(["a"], {}) == [1.0]
    finding = refusal(lambda: one(["slow"], {}))
    assert finding.code == "reward_hangs" and "raise seconds" in finding.message
    assert one(["a"], {}) == [1.0]


def test_a_function_that_raises_names_the_row_and_the_line(bench, write):
    text = (
        "def reward(completions, answer):\n    return [int(c) - int(a) for c, a in zip(completions, answer)]"
    )
    (one,) = bench.build(write(text))
    finding = refusal(lambda: one(["2", "three"], COLUMNS))
    assert finding.code == "reward_failed"
    assert "row 2 of the batch (prompt '2+1')" in finding.message
    assert "ValueError: invalid literal" in finding.message and "(line 2)" in finding.message


@pytest.mark.parametrize(
    ("returned", "code", "said"),
    [
        ("[1.0]", "reward_wrong_length", "got 1 values for 2 answers"),
        ("None", "reward_not_a_list", "returned a NoneType"),
        ("1.0", "reward_not_a_list", "returned a float"),
        ("{'a': 1}", "reward_not_a_list", "returned a dict"),
        ("[1.0, float('nan')]", "reward_not_finite", "nan"),
        ("[1.0, float('inf')]", "reward_not_finite", "inf"),
        ("['1', '2']", "reward_not_a_number", "'1' (str)"),
        ("[1.0, object()]", "reward_not_a_number", "a object"),
    ],
)
def test_case_109_a_bad_return_value_is_refused_in_the_trial(bench, write, returned, code, said):
    scorers = bench.build(write(f"def reward(completions): return {returned}"))
    finding = refusal(lambda: try_rewards(scorers, ROWS[:2]))
    assert finding.code == code and said in finding.message and "mine" in finding.message


def test_case_109_none_for_every_answer_is_told_with_the_prompt(bench, write):
    scorers = bench.build(write("def reward(completions, **kw): return [None for _ in completions]"))
    assert combine(scorers, ["2", "3"], COLUMNS).totals == [None, None]
    (finding,) = bench.told
    assert finding.level == "warning" and "prompt '1+1'" in finding.message


@pytest.mark.parametrize(
    "name", ["os.system", "../x", "a.b.c", "/etc/passwd", "x/y", "", "x;y", "x\n", "a" * 200, "é"]
)
def test_a_name_that_is_no_file_of_the_folder_is_refused_by_the_job(name):
    import json

    job = {"model": "smollm2-135m", "data": "x.jsonl", "stage": "sft"}
    job["rewards"] = [{"name": "file", "script": name}]
    with pytest.raises(FactoryError) as caught:
        parse_job(json.dumps(job))
    assert [one.field for one in caught.value.findings] == ["rewards[0].script"]


@pytest.mark.parametrize(
    "kind", ["link", "link to the folder's own file", "folder", "open file", "open folder"]
)
def test_a_link_a_folder_and_what_everybody_can_change_are_refused(bench, write, tmp_path, kind):
    canary = tmp_path / "canary"
    (tmp_path / "outside.py").write_text(f"open({str(canary)!r}, 'w')\ndef reward(completions): return [1]")
    folder = tmp_path / "rewards"
    reward = write("def reward(completions): return [1]", "own")
    if kind == "link":
        (folder / "mine.py").symlink_to(tmp_path / "outside.py")
    elif kind == "link to the folder's own file":
        (folder / "mine.py").symlink_to(folder / "own.py")
    elif kind == "folder":
        (folder / "mine.py").mkdir()
    else:
        write("def reward(completions): return [1]")
        (folder / "mine.py").chmod(0o666 if kind == "open file" else 0o644)
        folder.chmod(0o777 if kind == "open folder" else 0o755)
    finding = refusal(lambda: bench.build({**reward, "script": "mine"}))
    assert finding.code in ("reward_file_not_plain", "reward_file_open")
    assert not canary.exists()


def test_without_a_folder_or_a_file_the_sentence_says_what_to_do(bench, write, tmp_path):
    write("def reward(completions): return [1]", "other")
    finding = refusal(lambda: bench.build({"name": "file", "script": "mine.py"}))
    assert "there is no mine.py" in finding.message and "there are: other" in finding.message
    bench.environ = {}
    assert "FACTORY_REWARDS_DIR" in refusal(lambda: bench.build({"name": "file", "script": "mine"})).message
    bench.environ = {"FACTORY_REWARDS_DIR": str(tmp_path / "nowhere")}
    assert "no Python files" in refusal(lambda: bench.build({"name": "file", "script": "mine"})).message


def test_code_in_a_text_field_is_never_run(bench, tmp_path):
    canary = tmp_path / "canary"
    text = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    rewards = [
        {"name": "format", "pattern": text.replace("(", "[(]").replace(")", "[)]")},
        {"name": "accuracy", "mode": "exact", "column": text},
        {"name": "think_tags", "opening": text[:100]},
        {"name": "json_valid", "keys": [text]},
        {"name": "length", "tasks": [text]},
    ]
    columns = {"prompt": [text], "answer": [text], "task": [text], text: [text]}
    for one in bench.build(*rewards):
        one([text], columns)
    assert not canary.exists()


def test_the_file_runs_in_a_process_of_its_own(bench, write):
    (one,) = bench.build(write("import os\ndef reward(completions): return [os.getpid()]"))
    assert one(["a"], {}) != [float(os.getpid())]


def test_a_thousand_answers_are_scored_in_one_call(bench, write):
    text = "calls = []\ndef reward(completions):\n    calls.append(1)\n    return [len(calls)] * len(completions)"
    (one,) = bench.build(write(text))
    texts = ["word " * 200] * 1000
    (before,) = one(texts[:1], {})
    assert one(texts, {}) == [before + 1] * 1000
