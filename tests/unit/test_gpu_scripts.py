"""The scripts for a GPU, as far as they can be tried without one: every job is built, checked and planned."""

from __future__ import annotations

import pytest

from core.job.machine import this_machine
from tests.gpu.__main__ import DESCRIBED, main
from tests.gpu.cases import CASES, write_data
from tests.gpu.measure import measured, planned

NOT_HERE = {"engine_not_installed", "vllm_unavailable", "deepspeed_missing", "package_missing"}
"""What only says that something is not installed on the machine of this test."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("gpu rows"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_case_would_run_on_a_gpu(case, data, tmp_path):
    findings, command = planned(case, "smollm2-135m", data, DESCRIBED, tmp_path)
    assert [one.message for one in findings if one.level == "error" and one.code not in NOT_HERE] == []
    assert "core.training.worker" in command
    if case.engine == "unsloth":
        assert "envs/unsloth/bin/python" in command[0]
    assert ("core.training.ranks" in command) is (case.gpus > 1)


def test_what_the_issue_asks_for_is_there():
    kinds = {(case.stage["name"], case.method["name"], case.engine) for case in CASES}
    assert kinds >= {
        ("sft", "lora", "trl"),
        ("sft", "lora", "unsloth"),
        ("sft", "qlora", "unsloth"),
        ("grpo", "lora", "trl"),
    }
    assert any(case.stage.get("vllm") == "colocate" for case in CASES)
    assert any(case.strategy == "fsdp2" for case in CASES)


def test_the_dry_run_prints_every_command_and_starts_nothing(capsys, tmp_path):
    assert main(["--dry", "--home", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.count("RUN_FOLDER") == len(CASES) and "nothing is started" in told
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(this_machine().has_gpu, reason="is for machines without a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert main([]) == 2
    assert "--dry" in capsys.readouterr().err


def test_numbers_come_from_the_runs_own_events():
    events = [
        {
            "event": "metric",
            "step": step,
            "t": 10.0 + step,
            "values": {"loss": 3.0 - step / 10, "tokens_per_second": 100.0 * step},
        }
        for step in range(1, 7)
    ]
    done = measured({"state": "succeeded", "reason": None}, events, 5)
    assert (done.tokens_per_second, done.peak, done.losses, done.seconds) == (500.0, 5, (2.9, 2.4), 5.0)
