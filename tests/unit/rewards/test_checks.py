"""Rewards in `factory check` and `factory plan`: told before anything starts."""

from __future__ import annotations

import json

from core.cli.plan import plan_text
from core.job.checks import check
from core.job.load import parse_job
from core.job.machine import Machine
from core.job.plan import make_plan

CPU = Machine("Linux", "3.11", cores=2, memory=2**34, memory_free=2**33)


def job_of(tmp_path, *rewards):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1?", "completion": "2"}\n{"prompt": "2+2?", "completion": "4"}\n' * 20)
    return parse_job(
        json.dumps({"model": "smollm2-135m", "data": str(rows), "stage": "sft", "rewards": list(rewards)})
    )


def found(tmp_path, *rewards):
    return {one.code: one for one in check(job_of(tmp_path, *rewards), CPU, tmp_path / "home")}


def test_a_job_without_rewards_hears_nothing_of_them(tmp_path):
    assert not any("reward" in code for code in found(tmp_path))


def test_rewards_for_a_stage_that_asks_none_are_a_warning_with_a_fix(tmp_path):
    finding = found(tmp_path, "length")["rewards_unused"]
    assert (finding.level, finding.field, finding.fix) == ("warning", "rewards", {"rewards": []})


def test_what_the_operator_does_not_allow_is_told_all_at_once(tmp_path, monkeypatch):
    for name in ("FACTORY_ALLOW_CODE", "FACTORY_REWARDS_DIR", "FACTORY_JUDGES"):
        monkeypatch.delenv(name, raising=False)
    judge = {"name": "judge", "url": "http://127.0.0.1:9/v1", "judge_model": "m"}
    told = found(tmp_path, "code", {"name": "file", "script": "mine"}, judge)
    fields = {
        code: told[code].field for code in ("code_not_allowed", "no_rewards_folder", "judge_not_listed")
    }
    assert fields == {
        "code_not_allowed": "rewards[0]",
        "no_rewards_folder": "rewards[1].script",
        "judge_not_listed": "rewards[2].url",
    }


def test_the_judges_key_travels_to_the_run_by_its_name(tmp_path):
    judge = {"name": "judge", "url": "http://127.0.0.1:9/v1", "judge_model": "m", "key_env": "MY_API_KEY"}
    plan = make_plan(job_of(tmp_path, judge), tmp_path / "home", CPU)
    assert plan.environment[-1] == "MY_API_KEY"


def test_a_plan_shows_every_setting_of_every_reward_on_a_line(tmp_path):
    job = job_of(tmp_path, {"name": "length", "longest": 7}, "think_tags")
    text = plan_text(make_plan(job, tmp_path / "home", CPU))
    assert "rewards[0].longest" in text and "rewards[1].opening" in text
