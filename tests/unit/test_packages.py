"""What a job needs beyond the usual is told before it starts, with the command that brings it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.job.packages import TRACKER_VARIABLES, TRACKERS, missing_packages, vllm_problems
from core.job.spec import JobSpec

SMALLEST = {"model": "m", "data": "d.jsonl", "stage": "sft"}


def job(**parts: Any) -> JobSpec:
    return JobSpec.model_validate({**SMALLEST, **parts})


def test_an_ordinary_job_needs_nothing_more() -> None:
    assert list(missing_packages(job(), Path("no home"))) == []
    assert list(vllm_problems(job(stage="grpo"), gpu=False)) == []


@pytest.mark.parametrize(
    ("parts", "package"),
    [
        ({"train": {"optimizer": "lomo"}}, "lomo-optim"),
        ({"train": {"optimizer": "galore_adamw"}}, "galore-torch"),
        ({"report_to": ["swanlab"]}, "swanlab"),
        ({"method": "qlora"}, "bitsandbytes"),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    parts: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (finding,) = missing_packages(job(**parts), Path("no home"))
    assert finding.code == "package_missing" and f"pip install {package}" in finding.message


def test_every_reason_against_vllm_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FACTORY_VLLM_SERVER", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (finding,) = vllm_problems(job(stage={"name": "grpo", "vllm": "server"}), gpu=False)
    assert len(finding.params["reasons"]) == 3 and finding.fix == {"stage.vllm": "off"}


def test_every_tracker_has_its_variables_listed() -> None:
    assert set(TRACKERS) == set(TRACKER_VARIABLES)
