"""factory rewards try: scores of real answers, whether groups differ, and what looks wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.rewards.bench import bench as on_the_bench
from core.rewards.bench import correlation

ROWS = [{"prompt": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(4)]


def codes(report) -> set[str]:
    return {one.code for one in report.findings}


def test_the_matrix_has_every_reward_of_every_answer_and_the_best_comes_first(bench):
    scorers = bench.build("accuracy", {"name": "length", "longest": 3, "weight": 0.5})
    answers = [[f"It is \\boxed{{{2 * n}}}", "I do not know what that could possibly be"] for n in range(4)]
    report = on_the_bench(scorers, ROWS, answers)
    plain = report.to_json()
    assert [one["name"] for one in plain["rewards"]] == ["accuracy", "length"]
    assert plain["groups"][0]["answers"][0]["scores"]["accuracy"] == 1.0
    assert plain["without_signal"] == 0.0 and report.ranked()[0][2].startswith("It is")
    assert all(one["ms"] >= 0 for one in plain["rewards"])


def test_groups_without_any_spread_are_counted_and_warned_of(bench):
    report = on_the_bench(bench.build("accuracy"), ROWS, [["no", "no idea"]] * 4)
    assert report.signal.dead == 1.0 and "reward_no_signal" in codes(report)
    assert "In 4 of 4 groups" in report.findings[0].message


def test_a_reward_that_drowns_the_others_is_named_with_its_weight(bench):
    scorers = bench.build("accuracy", {"name": "length", "unit": "characters", "longest": 1, "weight": 100.0})
    answers = [[f"\\boxed{{{2 * n}}}", "x" * 60] for n in range(4)]
    found = {one.code: one for one in on_the_bench(scorers, ROWS, answers).findings}
    assert (
        found["reward_drowns_others"].field == "rewards[1].weight"
        and "accuracy" in found["reward_drowns_others"].message
    )


def test_a_reward_that_follows_length_is_told(bench):
    scorers = bench.build({"name": "repetition"})
    answers = [["one two three", "one two three " * 5, "one two three " * 20, "a b c"]] * 4
    assert "reward_by_length" in codes(on_the_bench(scorers, ROWS, answers))


def test_a_reward_that_likes_silence_is_told(bench):
    scorers = bench.build({"name": "length", "shortest": 0, "longest": 2, "fade": 2})
    report = on_the_bench(scorers, ROWS, [["far too many words here", "and here as well they are"]] * 4)
    assert "reward_likes_empty" in codes(report)


def test_good_rewards_are_not_remarked_on(bench):
    answers = [
        [f"\\boxed{{{2 * n}}}", f"\\boxed{{{n}9}}", f"It is {n}, I think", f"\\boxed{{{2 * n}}} it is"]
        for n in range(4)
    ]
    assert codes(on_the_bench(bench.build("accuracy"), ROWS, answers)) == set()


@pytest.mark.parametrize(
    ("pairs", "expected"), [([(1, 2), (2, 4), (3, 6)], 1.0), ([(1, 5), (2, 5), (3, 5)], None)]
)
def test_correlation(pairs, expected):
    assert correlation(pairs) == (pytest.approx(expected) if expected else None)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: smollm2-135m\ndata: {tmp_path / 'rows.jsonl'}\nstage: grpo\nrewards: [accuracy]\n"
    )
    return path


def answers_file(tmp_path: Path, lines: list[Any]) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_given_answers_are_scored_without_a_model_and_take_columns_from_the_jobs_rows(capsys, tmp_path, job):
    lines = [{"prompt": ROWS[2]["prompt"], "completions": ["\\boxed{4}", "\\boxed{5}"]}]
    lines += [{"prompt": "New?", "answer": "7", "completion": text} for text in ("\\boxed{7}", "8")]
    path = answers_file(tmp_path, lines)
    assert main(["rewards", "try", str(job), "--completions", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    totals = [[answer["total"] for answer in group["answers"]] for group in told["groups"]]
    assert totals == [[1.0, 0.0], [1.0, 0.0]] and told["findings"] == []
    assert main(["rewards", "try", str(job), "--completions", str(path)]) == 0
    out = capsys.readouterr().out
    assert "0 of 2 groups without any signal" in out and "best   1" in out


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"prompt": "a"}', '{"completion": "a"}', '{"prompt": "a", "completions": [1]}']
)
def test_a_wrong_line_of_answers_is_one_sentence_with_its_number(capsys, tmp_path, job, line):
    path = answers_file(tmp_path, [line])
    assert main(["rewards", "try", str(job), "--completions", str(path)]) == 2
    err = capsys.readouterr().err
    assert "line 1 must be a JSON object" in err and "Traceback" not in err


def test_a_job_without_rewards_is_refused(capsys, job):
    job.write_text(job.read_text().replace("rewards: [accuracy]\n", ""))
    assert main(["rewards", "try", str(job)]) == 2
    assert "names no rewards" in capsys.readouterr().err
