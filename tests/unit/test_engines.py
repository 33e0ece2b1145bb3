"""Engines as a job and a plan see them: what one cannot do is refused with the one that can, and where it lives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.engines import ENGINES, engine_module, unsloth
from core.job import environments
from core.job.calibration import learn, pace
from core.job.checks import check
from core.job.counting import probed
from core.job.load import check_values
from core.job.machine import Gpu, Machine
from core.job.plan import make_plan, planned_things
from data.errors import FactoryError

GIB = 2**30
CPU = Machine("Linux", "3.11", cores=2, memory=24 * GIB, memory_free=20 * GIB)
GPU = Machine("Linux", "3.11", 8, 64 * GIB, 60 * GIB, (Gpu(0, "GPU", 80 * GIB, 80 * GIB, 9.0, "1"),))

# What Unsloth does not take, one job each that asks for it; the field, and the change that settles it.
ASKED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"model": {"name": "m", "adapter": "folder"}}, "model.adapter", {"engine": "trl"}),
    ({"model": {"name": "m", "attention": "eager"}}, "model.attention", {"model.attention": "auto"}),
    ({"stage": {"name": "sft", "loss": "dft"}}, "stage.loss", {"engine": "trl"}),
    ({"stage": {"name": "dpo", "loss": ["simpo"]}}, "stage.loss", {"engine": "trl"}),
    (
        {"stage": {"name": "grpo", "vllm": "colocate"}, "rewards": ["length"]},
        "stage.vllm",
        {"stage.vllm": "off"},
    ),
    ({"method": {"name": "lora", "dora": True}}, "method.dora", {"method.dora": False}),
    ({"method": {"name": "lora", "init": "pissa"}}, "method.init", {"method.init": "default"}),
    (
        {"method": {"name": "lora", "modules_to_save": ["q_proj"]}},
        "method.modules_to_save",
        {"engine": "trl"},
    ),
    (
        {"method": {"name": "qlora", "double_quant": False}},
        "method.double_quant",
        {"method.double_quant": True},
    ),
    ({"method": {"name": "qlora", "bits": "int8"}}, "method.bits", {"method.bits": "nf4"}),
    (
        {"train": {"optimizer": "paged_adamw_8bit"}},
        "train.optimizer",
        {"train.optimizer": "adamw_torch_fused"},
    ),
    ({"train": {"fused": False}}, "train.fused", {"train.fused": True}),
    ({"hardware": {"precision": "bf16"}}, "hardware.precision", {"hardware.precision": "auto"}),
]
ON_A_CPU_ONLY = {"method.bits", "train.optimizer", "hardware.precision"}


def job(**parts: Any) -> Any:
    """A job for engine unsloth."""
    return check_values({"model": "m", "data": "rows.jsonl", "stage": "sft", "engine": "unsloth", **parts})


@pytest.fixture(autouse=True)
def _no_shared_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environments.ENVS, raising=False)


@pytest.mark.parametrize(("parts", "field", "fix"), ASKED, ids=[field for _, field, _ in ASKED])
def test_what_unsloth_does_not_take_is_refused_with_what_does(parts, field, fix):
    (found,) = unsloth.supports(job(**parts), gpu=False)
    assert (found.code, found.level, found.field, found.fix) == ("engine_cannot", "error", field, fix)
    assert (
        found.message.startswith(f"engine unsloth does not take {field} ") and "engine trl" in found.message
    )
    on_gpu = list(unsloth.supports(job(**parts), gpu=True))
    assert bool(on_gpu) is (field not in ON_A_CPU_ONLY)


def test_every_limit_has_a_job_here():
    assert {limit.field for limit in unsloth.LIMITS} == {field for _, field, _ in ASKED}
    assert len(unsloth.LIMITS) == len(ASKED)


def test_what_it_does_take_is_not_refused():
    method = {
        "name": "lora",
        "modules_to_save": ["lm_head", "embed_tokens"],
        "init": "gaussian",
        "rslora": True,
    }
    assert list(unsloth.supports(job(method=method), gpu=False)) == []


@pytest.mark.parametrize(("part", "kind"), [("stage", "kto"), ("stage", "ppo"), ("method", "freeze")])
def test_stages_and_methods_it_lacks_name_the_engine_that_has_them(part, kind, tmp_path):
    rewards = {"rewards": ["length"]} if kind == "ppo" else {}
    findings = check(job(**{part: kind}, **rewards), CPU, tmp_path)
    (found,) = [one for one in findings if one.code == f"engine_without_{part}"]
    assert found.message == f"engine unsloth does not run {part} {kind}; choose engine trl."
    assert found.fix == {"engine": "trl"}


def test_several_devices_are_refused(tmp_path):
    findings = check(job(hardware={"devices": 2}), CPU, tmp_path)
    assert any(one.code == "engine_without_strategy" and "engine trl" in one.message for one in findings)


def test_an_engine_that_is_not_installed_is_refused_with_the_one_command(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one"}\n' * 8, "utf-8")
    file = tmp_path / "job.yaml"
    file.write_text(f"model: smollm2-135m\ndata: {rows}\nstage: pretrain\nengine: unsloth\n", "utf-8")
    assert main(["--home", str(tmp_path), "train", str(file)]) == 2
    told = capsys.readouterr().err
    assert "engine unsloth is not installed; run: factory env install unsloth" in told
    assert not (tmp_path / "runs").exists()


def installed_at(folder: Path) -> environments.Environment:
    """The environment of unsloth as if it were installed in `folder`, with one package."""
    chosen = environments.environment("unsloth")
    packages = folder / "unsloth" / "lib" / "python3.11" / "site-packages"
    info = packages / "trl-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 9.9\n", "utf-8")
    return chosen


def test_its_own_python_trains_and_its_own_versions_are_kept(tmp_path, monkeypatch):
    """FACTORY_ENVS names the folder of environments for several homes."""
    monkeypatch.setenv(environments.ENVS, str(tmp_path / "shared"))
    chosen = installed_at(tmp_path / "shared")
    assert not chosen.installed(tmp_path / "home")
    chosen.stamp(tmp_path / "home")
    assert chosen.installed(tmp_path / "another home")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one"}\n' * 8, "utf-8")
    asked = job(model="smollm2-135m", data=str(rows), stage="pretrain")
    plan = make_plan(asked, tmp_path / "home", CPU)
    assert plan.argv == [str(tmp_path / "shared/unsloth/bin/python"), "-m", "core.training.worker"]
    assert plan.versions["trl"] == "9.9" and plan.versions["torch"] is None
    plain = make_plan(
        job(model="smollm2-135m", data=str(rows), engine="trl", stage="pretrain"), tmp_path, CPU
    )
    assert plain.argv[0] == sys.executable and plain.versions["trl"] != "9.9"
    codes = [(one.code, one.field) for one in check(asked, CPU, tmp_path / "home")]
    assert ("package_missing", "train.optimizer") not in codes
    assert "engine_not_installed" not in {code for code, _ in codes}
    report = job(model="smollm2-135m", data=str(rows), stage="pretrain", report_to=["wandb"])
    (missing,) = [one for one in check(report, CPU, tmp_path / "home") if one.code == "package_missing"]
    assert f"{tmp_path / 'shared/unsloth/bin/python'} -m pip install wandb" in missing.message


def test_two_steps_are_tried_with_engine_trl_only(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one"}\n' * 8, "utf-8")
    plan = make_plan(job(model="smollm2-135m", data=str(rows), stage="pretrain"), tmp_path, CPU)
    with pytest.raises(FactoryError, match="leave --probe out"):
        probed(plan, tmp_path)


def test_each_engine_has_a_pace_of_its_own(tmp_path):
    """Or what Unsloth makes of a GPU would be foretold of plain TRL."""
    plan = {
        "forecast": {"flops_per_token": 10.0},
        "job": {"stage": {"name": "sft"}, "method": {"name": "lora"}, "engine": {"name": "unsloth"}},
    }
    events = [
        {"event": "ready", "mono": 1.0},
        {"event": "start", "mono": 5.0, "device": "GPU"},
        *({"event": "metric", "values": {"tokens_per_second": 500.0}} for _ in range(3)),
    ]
    assert learn(tmp_path, plan, events)
    own, other = (pace(tmp_path, "GPU", 2, "sft", "lora", name) for name in ("unsloth", "trl"))
    assert (own.flops, own.start, own.runs) == (5000.0, 4.0, 1) and other.runs == 0


def test_what_was_not_run_is_planned():
    on_gpu = planned_things(job(), GPU)
    assert any("engine unsloth on a GPU" in one for one in on_gpu)
    assert planned_things(job(), CPU) == []


def test_its_environment_has_our_own_versions_of_what_training_imports():
    """Or rows, losses and files would be others than those of engine trl."""
    ours = environments.environment("unsloth")
    pins = dict(line.split("==") for line in ours.packages)
    main_pins = {
        name: version
        for name, _, version in (
            line.split("#")[0].strip().partition("==")
            for line in environments.PINS.read_text("utf-8").splitlines()
        )
        if version
    }
    shared = pins.keys() & main_pins.keys()
    assert {"torch", "transformers", "trl", "peft", "datasets", "bitsandbytes", "pyarrow"} <= shared
    assert {name: pins[name] for name in shared} == {name: main_pins[name] for name in shared}
    assert all("==" in one for one in (*ours.packages, *ours.then))


def test_what_would_bring_another_torch_is_installed_last_and_alone(tmp_path):
    make, packages, last = environments.environment("unsloth").commands(tmp_path)
    assert "venv" in make and "--no-deps" not in packages
    assert "--no-deps" in last and any(one.startswith("unsloth==") for one in last)
    assert last[0] == packages[0] == str(tmp_path / "envs/unsloth/bin/python")


@pytest.mark.parametrize("name", [one for one in ENGINES.names if one != "auto"])
def test_every_engine_says_what_it_is(name):
    engine = engine_module(name)
    assert engine.STAGES and engine.METHODS and "none" in engine.STRATEGIES
    assert engine.ENVIRONMENT is None or environments.environment(engine.ENVIRONMENT)
    assert callable(engine.begin) and callable(engine.load) and callable(engine.wear)


def test_the_library_is_refused_in_words_where_it_is_not(tmp_path, monkeypatch):
    """In our own environment there is no Unsloth: the training process says so instead of a traceback."""
    from core.training.unsloth_engine import variables

    for name in variables(job(), tmp_path):
        monkeypatch.setenv(name, "")  # taken back after this test
    with pytest.raises(FactoryError, match="factory env install unsloth"):
        unsloth.begin(job(), tmp_path)
