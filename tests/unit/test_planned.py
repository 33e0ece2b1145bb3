"""What nobody has run yet is said in the plan, and only that."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from core.cli.plan import plan_text
from core.job.machine import Gpu, Machine
from core.job.plan import make_plan, planned_things
from core.job.spec import JobSpec
from tests.unit.test_models import whole_model

CPU = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
GPU = dataclasses.replace(CPU, gpus=(Gpu(0, "card", 24 << 30, 24 << 30, 8.0, "1"),))


def job(stage: object, model: str = "m", data: str = "d.jsonl") -> JobSpec:
    return JobSpec.model_validate({"model": model, "data": data, "stage": stage})


def test_a_cpu_job_relies_on_nothing_that_was_never_run() -> None:
    assert planned_things(job("sft"), CPU) == []


def test_a_gpu_and_vllm_are_named() -> None:
    named = planned_things(job({"name": "grpo", "vllm": "colocate"}), GPU)
    assert named == ["training on a GPU", "answers sampled by vLLM"]


def test_the_plan_says_it(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"text": "one"}\n', "utf-8")
    asked = job("sft", str(whole_model(tmp_path / "model")), str(data))
    assert "Planned, not run by us yet\n  training on a GPU" in plan_text(make_plan(asked, tmp_path, GPU))
    assert "Planned" not in plan_text(make_plan(asked, tmp_path, CPU))


def test_the_plan_says_how_many_processes_share_the_work_and_what_a_step_takes(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"text": "one"}\n', "utf-8")
    asked = job("sft", str(whole_model(tmp_path / "model")), str(data))
    shared = asked.model_copy(update={"hardware": asked.hardware.model_copy(update={"devices": 2})})
    told = plan_text(make_plan(shared, tmp_path, CPU))
    assert "2 on this machine, ddp; a step takes 16 rows (4 x accumulation 2 x 2)" in told
    assert "processes" not in plan_text(make_plan(asked, tmp_path, CPU))
    gpus = dataclasses.replace(CPU, gpus=(GPU.gpus[0], dataclasses.replace(GPU.gpus[0], index=1)))
    assert planned_things(shared, gpus) == ["training on several GPUs"]
