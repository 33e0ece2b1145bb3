"""docs/rewards.md: its jobs are jobs, its Python file is a reward."""

from __future__ import annotations

from pathlib import Path

from core.job.load import parse_job
from core.rewards import REWARDS, try_rewards
from tests.unit.test_docs import blocks

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "rewards.md").read_text("utf-8")


def test_every_reward_is_in_the_table():
    for module in REWARDS:
        assert f"\n| `{module.Spec.model_fields['name'].default}` | " in PAGE


def test_the_jobs_of_the_page_are_jobs():
    jobs = [parse_job(text) for text in blocks(PAGE, "yaml")]
    assert [len(job.rewards) for job in jobs] == [3, 3, 1]


def test_the_python_file_of_the_page_works(bench, tmp_path):
    (text,) = blocks(PAGE, "python")
    (tmp_path / "quality.py").write_text(text)
    bench.environ["FACTORY_REWARDS_DIR"] = str(tmp_path)
    scorers = bench.build({"name": "file", "script": "quality"})
    try_rewards(scorers, [{"prompt": "2+2?", "answer": "4"}])
    assert scorers[0](["it is 4", "5"], {"prompt": ["a", "b"], "answer": ["4", "4"]}) == [1.0, 0.0]
