"""How many processes a job asks for, how they share the work, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.engines import trl
from core.job import hardware_checks
from core.job.checks import check
from core.job.deepspeed import deepspeed_settings
from core.job.forecast import device_of, place_of
from core.job.load import parse_job
from core.job.machine import Gpu, Machine
from core.job.presets import resolve
from core.job.schedule import schedule
from core.job.spec import JobSpec
from core.runs import queue
from data.errors import FactoryError, Finding

CPU = Machine("Linux", "3.11", cores=2, memory=2**34, memory_free=2**33)
GPUS = Machine(
    "Linux", "3.11", 8, 2**38, 2**37, gpus=tuple(Gpu(n, "H200", 2**37, 2**37, 9.0, "550") for n in range(2))
)
SMALLEST = "model: smollm2-135m\ndata: {rows}\nstage: {stage}\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    chats = ([{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "!"}] for n in range(40))
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return path


def job(text: str, rows: Path | str = "rows.jsonl", stage: str = "sft") -> JobSpec:
    return parse_job(SMALLEST.format(rows=rows, stage=stage) + text)


def found(text: str, rows: Path, machine: Machine, stage: str = "sft") -> dict[str, Finding]:
    return {one.code: one for one in check(job(text, rows, stage), machine, rows.parent / "home")}


@pytest.mark.parametrize(
    ("text", "processes", "sharing", "zero"),
    [
        ("", 1, "none", 0),
        ("hardware: {devices: 2}", 2, "ddp", 0),
        ("hardware: {devices: [0, 3, 3]}", 2, "ddp", 0),
        ("hardware: {devices: 4, nodes: 3, strategy: deepspeed-3}", 12, "deepspeed-3", 3),
        ("hardware: {strategy: deepspeed-2}", 1, "deepspeed-2", 2),
    ],
)
def test_a_number_is_how_many_and_a_list_is_which(text, processes, sharing, zero):
    hardware = job(text).hardware
    assert (hardware.processes, hardware.sharing, hardware.zero) == (processes, sharing, zero)


def test_the_same_job_has_the_same_effective_batch_on_any_number_of_processes():
    for count in (1, 2, 4, 16):
        train = resolve(job(f"hardware: {{devices: {count}}}"), parameters=None, gpu=True).job.train
        assert train.batch_size * train.gradient_accumulation * count == 16
    resolved = resolve(job("hardware: {devices: 2}"), parameters=None, gpu=False).job
    assert resolved.hardware.strategy == "ddp"
    train = resolved.train.model_copy(update={"epochs": 1.0})
    assert schedule(train, 160).total_steps == 20 and schedule(train, 160, processes=2).total_steps == 10


@pytest.mark.parametrize(
    ("text", "machine", "code"),
    [
        ("hardware: {devices: 3}", GPUS, "too_few_devices"),
        ("hardware: {nodes: 2}", CPU, "nodes_without_launcher"),
        ("hardware: {devices: 8}", CPU, "too_few_devices"),
        ("hardware: {devices: 2, strategy: none}", CPU, "strategy_none_with_several"),
        ("hardware: {strategy: ddp}", CPU, "strategy_for_one"),
        ("hardware: {devices: 2, strategy: fsdp2}", CPU, "fsdp2_on_cpu"),
        ("hardware: {devices: 2, offload: true}", GPUS, "offload_without_deepspeed"),
        ("hardware: {devices: 2, offload: true, strategy: deepspeed-2}", CPU, "offload_on_cpu"),
        ("hardware: {devices: 2, strategy: deepspeed-2}", CPU, "deepspeed_missing"),
        ("method: qlora\nhardware: {devices: 2, strategy: deepspeed-3}", GPUS, "strategy_not_here"),
        ("method: qlora\nhardware: {devices: 2, strategy: fsdp2}", GPUS, "strategy_not_here"),
        (
            "method: {name: lora, init: pissa}\nhardware: {devices: 2, strategy: deepspeed-3}",
            GPUS,
            "strategy_not_here",
        ),
        ("hardware: {devices: 2, deepspeed_config: x.json}", GPUS, "deepspeed_config_unused"),
        (
            "train: {optimizer: lomo}\nhardware: {devices: 2, strategy: deepspeed-2}",
            GPUS,
            "optimizer_not_for_deepspeed",
        ),
        (
            "train: {optimizer: adafactor}\nhardware: {devices: 2, strategy: deepspeed-2, offload: true}",
            GPUS,
            "optimizer_not_offloaded",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_with_what_to_do(rows, monkeypatch, text, machine, code):
    missing = code == "deepspeed_missing"
    monkeypatch.setattr(hardware_checks, "installed", lambda name: None if missing else "1")
    finding = found(text, rows, machine)[code]
    assert finding.level == "error" and finding.field and "; " in finding.message
    assert finding.message.count(". ") == 0


def test_ppo_in_several_processes_is_refused_with_the_reason(rows):
    finding = found("rewards: [length]\nhardware: {devices: 2}", rows, CPU, "ppo")["strategy_not_here"]
    assert "ppo trains in one process" in finding.message and finding.fix


def test_answers_of_all_processes_make_whole_groups(rows):
    text = "rewards: [length]\nhardware: {{devices: 2}}\ntrain: {{batch_size: {}, gradient_accumulation: 1}}"
    stage = "{name: grpo, num_generations: 8}"
    assert "batch_not_in_groups" not in found(text.format(4), rows, CPU, stage)
    finding = found(text.format(6), rows, CPU, stage)["batch_not_in_groups"]
    assert "6 x train.gradient_accumulation 1 x 2 processes = 12 answers" in finding.message
    assert finding.fix == {"train.batch_size": 2, "train.gradient_accumulation": 4} or finding.fix == {
        "train.batch_size": 2,
        "train.gradient_accumulation": 2,
    }


def test_a_deepspeed_file_that_contradicts_the_job_is_told_key_by_key(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_checks, "installed", lambda name: "1")
    path = tmp_path / "ds.json"
    own = {
        "train_batch_size": 999,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": 0.3,
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 5},
        "optimizer": {"type": "Lamb", "params": {"lr": 7}},
        "scheduler": {"type": "WarmupLR"},
        "fp16": {"enabled": True},
    }
    path.write_text(json.dumps(own))
    text = f"hardware: {{devices: 2, strategy: deepspeed-2, deepspeed_config: {path}}}"
    told = [one for one in check(job(text, rows), CPU, tmp_path / "home") if one.level == "error"]
    assert {one.code for one in told} == {"deepspeed_config_contradicts"}
    words = "\n".join(one.message for one in told)
    for key, value, field in (
        ("train_batch_size", "999", "train.batch_size"),
        ("gradient_clipping", "0.3", "train.max_grad_norm"),
        ("zero_optimization.stage", "3", "hardware.strategy"),
        ("optimizer.type", "Lamb", "train.optimizer"),
        ("optimizer.params.lr", "7", "train.learning_rate"),
        ("scheduler", "WarmupLR", "train.scheduler"),
        ("fp16.enabled", "true", "hardware.precision"),
    ):
        assert f"{key} {value}, and by {field}" in words
    assert len(told) == 7


@pytest.mark.parametrize("content", ["{", "[1]", None])
def test_a_deepspeed_file_that_cannot_be_read_is_refused(rows, tmp_path, monkeypatch, content):
    monkeypatch.setattr(hardware_checks, "installed", lambda name: "1")
    path = tmp_path / "ds.json"
    if content is not None:
        path.write_text(content)
    text = f"hardware: {{devices: 2, strategy: deepspeed-2, deepspeed_config: {path}}}"
    assert "deepspeed_config_unreadable" in found(text, rows, CPU)


def test_the_users_own_deepspeed_settings_are_laid_over_those_made_from_the_job(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(
        json.dumps({"zero_optimization": {"reduce_bucket_size": 5}, "wall_clock_breakdown": True})
    )
    asked = job(f"hardware: {{devices: 2, strategy: deepspeed-3, deepspeed_config: {path}}}")
    made = deepspeed_settings(resolve(asked, parameters=None, gpu=True).job, half="bf16")
    assert made["wall_clock_breakdown"] is True and made["bf16"] == {"enabled": True}
    zero = made["zero_optimization"]
    assert zero["reduce_bucket_size"] == 5 and zero["stage"] == 3
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True


def test_an_agreeing_deepspeed_file_is_not_remarked_on(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_checks, "installed", lambda name: "1")
    path = tmp_path / "ds.json"
    asked = job("hardware: {devices: 2, strategy: deepspeed-2}", rows)
    resolved = resolve(asked, parameters=None, gpu=False).job
    path.write_text(json.dumps(deepspeed_settings(resolved, half="")))
    text = f"hardware: {{devices: 2, strategy: deepspeed-2, deepspeed_config: {path}}}"
    assert [one for one in found(text, rows, CPU).values() if one.level == "error"] == []


def test_the_forecast_takes_the_jobs_strategy_and_its_share_of_the_cpu():
    asked = resolve(job("hardware: {devices: 2, strategy: deepspeed-3}"), parameters=None, gpu=False).job
    strategy = place_of(asked, CPU).strategy
    assert (strategy.name, strategy.devices) == ("deepspeed-3", 2)
    assert device_of(asked, CPU) == (CPU.memory // 2, "cpu") and device_of(asked, GPUS) == (2**37, "H200")


def test_several_processes_are_started_by_torchruns_own_machinery(tmp_path):
    assert trl.plan(job(""), tmp_path)[1:] == ["-m", "core.training.worker"]
    words = trl.plan(job("hardware: {devices: 2}"), tmp_path)[1:]
    assert words[:2] == ["-m", "core.training.ranks"] and words[-2:] == ["-m", "core.training.worker"]
    assert words[words.index("--nproc-per-node") + 1] == "2"


def test_any_two_gpus_are_taken_at_once_and_a_cpu_is_one_slot(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("FACTORY_CPU_SLOTS", raising=False)
    monkeypatch.setattr(queue, "_gpu_numbers", lambda: [])
    assert (queue.wish_for(2).slots, queue.wish_for(2).count) == (("cpu0",), 1)
    monkeypatch.setattr(queue, "_gpu_numbers", lambda: [0, 1, 2])
    monkeypatch.setattr("core.runs.gpus.foreign_processes", dict)
    with pytest.raises(FactoryError, match="asks for 4 devices, but this machine offers gpu0, gpu1, gpu2"):
        queue.wish_for(4)
    line, run = queue.Queue(tmp_path / "slots"), tmp_path / "run"
    for key, wish in {
        "one": queue.wish_for([1]),
        "two": queue.wish_for(2),
        "more": queue.wish_for(2),
    }.items():
        line.enter(wish, run, key, os.dup)
    one, two = line.try_take("one", run), line.try_take("two", run)
    assert isinstance(one, queue.Grant) and isinstance(two, queue.Grant)
    assert sorted(two.slots) == ["gpu0", "gpu2"]
    assert isinstance(line.try_take("more", run), queue.Wait)
    os.close(one.slots["gpu1"])
    assert isinstance(line.try_take("more", run), queue.Wait), "one free slot is not two"
    os.close(two.slots["gpu2"])
    assert isinstance(line.try_take("more", run), queue.Grant)
