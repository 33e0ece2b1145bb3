"""What launchers need of a job: refused at plan time in words, and shown by the plan."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.cli.plan import plan_text
from core.job.checks import check
from core.job.launcher_checks import machine_of, srun_has_containers
from core.job.load import parse_job
from core.job.machine import Machine
from core.job.plan import make_plan
from core.job.spec import JobSpec
from core.launchers import LAUNCHERS
from core.launchers.torchrun import Spec, ssh_words
from core.nodes.rendezvous import command_of_node
from core.runs import control
from data.errors import FactoryError

CPU = Machine("Linux", "3.11", cores=2, memory=2**34, memory_free=2**33)
SMALLEST = "model: smollm2-135m\ndata: {rows}\nstage: sft\n"
TRAINING = ["python", "-m", "core.training.ranks", "--standalone", "--nproc-per-node", "2", "-m", "w"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    chats = ([{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "!"}] for n in range(40))
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return path


def found(text: str, rows: Path) -> dict[str, Any]:
    findings = check(parse_job(SMALLEST.format(rows=rows) + text), CPU, rows.parent / "home")
    return {one.code: one for one in findings if one.level == "error"}


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("hardware: {nodes: 2}", "nodes_without_launcher", "use launcher torchrun or slurm"),
        ("launcher: torchrun", "launcher_for_several", "hardware.nodes is 1; set hardware.nodes"),
        ("launcher: torchrun\nhardware: {nodes: 2}", "endpoint_missing", "like 10.0.0.1:29500"),
        (
            "launcher: {name: torchrun, endpoint: 'a:99999'}\nhardware: {nodes: 2}",
            "endpoint_port",
            "1 to 65,535",
        ),
        (
            "launcher: {name: torchrun, endpoint: 'a:1', hosts: [b, c]}\nhardware: {nodes: 2}",
            "hosts_not_nodes",
            "names 2 of the 1 other nodes",
        ),
        (
            "launcher: {name: torchrun, endpoint: 'a:1', hosts: [b, b]}\nhardware: {nodes: 3}",
            "host_twice",
            "names b more than once",
        ),
        ("launcher: slurm", "slurm_missing", "needs sbatch, which this machine does not have"),
        (
            "launcher: {name: slurm, gpus: false, gpu_type: a100}",
            "gpu_type_without_gpus",
            "says nothing with launcher.gpus false",
        ),
        (
            "launcher: {name: slurm, gpus: false, mounts: [/data]}",
            "mounts_without_container",
            "says nothing without launcher.container",
        ),
        (
            "launcher: {name: slurm, gpus: false, container: 'a:1'}\nengine: unsloth",
            "container_engine",
            "which engine unsloth does not use; choose engine trl",
        ),
    ],
)
def test_what_a_launcher_lacks_is_refused_before_anything_starts(text, code, words, rows, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name == "sbatch" else f"/bin/{name}")
    told = found(text, rows)
    assert code in told and words in told[code].message


def test_a_container_is_refused_where_srun_has_none_or_a_path_cannot_be_told(rows, monkeypatch, tmp_path):
    text = "launcher: {name: slurm, gpus: false, container: 'a:1'}"
    folder = tmp_path / "bin"
    folder.mkdir()
    for options, codes in (("--container-image=IMAGE", set()), ("--constraint=LIST", {"pyxis_missing"})):
        for name in ("srun", "sbatch"):
            (folder / name).write_text(f"#!/bin/sh\necho '{options}'\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        srun_has_containers.cache_clear()
        assert set(found(text, rows)) == codes
    srun_has_containers.cache_clear()
    odd = tmp_path / "a,b"
    odd.mkdir()
    assert "container_path" in found(text, rows.rename(odd / "rows.jsonl"))


def test_hosts_without_ssh_are_refused(rows, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    text = "launcher: {name: torchrun, endpoint: 'a:1', hosts: [b]}\nhardware: {nodes: 2}"
    assert "needs ssh" in found(text, rows)["ssh_missing"].message


@pytest.mark.parametrize(
    "text",
    [
        "launcher: {name: torchrun, endpoint: '10.0.0.1:29500'}\nhardware: {nodes: 2}",
        "launcher: {name: torchrun, endpoint: '[fe80::1]:29500', hosts: [me@b, c]}\nhardware: {nodes: 3, devices: 2}",
        "launcher: slurm\nhardware: {nodes: 2, devices: 8, precision: bf16, strategy: fsdp2}",
        "launcher: {name: slurm, gpus: false}\nhardware: {nodes: 2, devices: 64}",
    ],
)
def test_what_is_right_is_not_refused(text, rows, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/bin/{name}")
    assert found(text, rows) == {}


def test_a_cluster_is_judged_by_what_is_asked_of_it_and_not_by_this_machine():
    job = parse_job(
        SMALLEST.format(rows="r") + "launcher: {name: slurm, gpu_type: h200}\nhardware: {devices: 4}"
    )
    told = machine_of(job, CPU)
    assert [gpu.name for gpu in told.gpus] == ["h200"] * 4
    without = parse_job(SMALLEST.format(rows="r") + "launcher: {name: slurm, gpus: false, cpus_per_task: 16}")
    assert machine_of(without, CPU) == dataclasses.replace(machine_of(without, CPU), gpus=(), cores=16)
    assert machine_of(parse_job(SMALLEST.format(rows="r")), CPU) is CPU


def test_a_job_of_a_cluster_takes_no_device_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = {"hardware": {"devices": 8}, "launcher": {"name": "slurm"}}
    assert control.wish_of(job).slots == () and control.shared(job)
    assert control.wish_of({"hardware": {"devices": 8}}).slots and not control.shared({})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hosts", ["-oProxyCommand=x"]),
        ("hosts", ["a b"]),
        ("hosts", ["a;b"]),
        ("hosts", [""]),
        ("hosts", ["@a"]),
        ("endpoint", "10.0.0.1"),
        ("endpoint", "$(id):1"),
        ("endpoint", ":29500"),
        ("interface", "eth0;x"),
        ("interface", "--x"),
        ("timeout", 1),
        ("ssh_port", 0),
    ],
)
def test_values_that_are_more_than_a_value_are_refused(field, value):
    with pytest.raises(ValidationError):
        Spec.model_validate({"name": "torchrun", field: value})


@given(host=st.text(max_size=40), home=st.text(min_size=1, max_size=40))
def test_ssh_gets_a_host_and_one_quoted_command(host, home):
    try:
        spec = Spec(hosts=[host])
    except ValidationError:
        return
    words = ssh_words(spec, host, home, "run-1", 1)
    assert words[-3:-1] == ["--", host] and not host.startswith("-")
    there = shlex.split(words[-1])
    assert there[there.index("--home") :] == ["--home", home, "node", "run-1", "--rank", "1"]


@pytest.mark.parametrize("launcher", ["local", "torchrun", "slurm"])
def test_the_plan_shows_what_each_node_does(launcher, rows):
    text = {
        "local": "",
        "torchrun": "hardware: {nodes: 2}\nlauncher: {name: torchrun, endpoint: '10.0.0.1:29500'}",
        "slurm": "hardware: {nodes: 2}\nlauncher: {name: slurm, gpus: false, partition: cpu}",
    }[launcher]
    plan = make_plan(parse_job(SMALLEST.format(rows=rows) + text), rows.parent / "home", CPU)
    told = plan_text(plan)
    assert ("factory --home HOME_FOLDER node RUN --rank 1" in told) == (launcher == "torchrun")
    assert ("#SBATCH --partition=cpu" in told) == (launcher == "slurm")
    assert (plan.argv == plan.training) == (launcher == "local")
    assert bool(plan.ending) == (launcher == "slurm")
    assert "core.training" in " ".join(plan.training)


def test_a_cluster_with_gpus_is_called_planned(rows):
    text = "launcher: {name: slurm, partition: gpu}"
    plan = make_plan(parse_job(SMALLEST.format(rows=rows) + text), rows.parent / "home", CPU)
    assert plan.planned == ["training on a GPU"] and plan.forecast is None
    assert "nobody here can look at the cluster's machines" in plan_text(plan)


def test_a_node_meets_the_others_where_node_0_opens_the_door_and_has_the_rank_that_it_is_told():
    words = command_of_node(TRAINING, 1, 2, "10.0.0.1:1234", key="k", timeout=60)
    assert words[:3] == TRAINING[:3] and words[-4:] == TRAINING[-4:] and "--standalone" not in words
    told = dict(zip(words[3:-4:2], words[4:-4:2], strict=True))
    assert told == {
        "--nnodes": "2",
        "--node-rank": "1",
        "--rdzv-backend": "static",
        "--rdzv-endpoint": "10.0.0.1:1234",
        "--rdzv-id": "k",
        "--rdzv-conf": "timeout=60",
        "--max-restarts": "0",
    }
    assert "--node-rank 0" in " ".join(command_of_node(TRAINING, 0, 2, "a:1", key="k", timeout=60))


def test_a_command_without_processes_of_its_own_stays_as_it_is():
    assert command_of_node(["python", "-m", "w"], 1, 2, "a:1", key="k", timeout=60) == ["python", "-m", "w"]


def test_every_launcher_has_its_words():
    job = JobSpec.model_validate({"model": "m", "data": "d.jsonl", "stage": "sft"})
    for module in LAUNCHERS:
        assert module.command(TRAINING) and isinstance(module.ending(), list) and module.Spec.__doc__
    assert LAUNCHERS.named("local").steps(job, TRAINING) == []


@pytest.mark.parametrize("rank", [0, 2, -1])
def test_a_rank_that_is_none_of_the_others_is_refused(rank, tmp_path):
    from core.nodes.node import join

    run = _run(tmp_path, {"name": "torchrun", "endpoint": "10.0.0.1:1"})
    with pytest.raises(FactoryError, match=r"has ranks 1 to 1"):
        join(run, rank, print)


def test_a_run_of_another_launcher_has_no_nodes_to_join(tmp_path):
    from core.nodes.node import join

    with pytest.raises(FactoryError, match="not of launcher torchrun"):
        join(_run(tmp_path, {"name": "local"}), 1, print)


def _run(home: Path, launcher: dict[str, Any]) -> Any:
    from core.runs.folder import create_run

    return create_run(home, "", {"hardware": {"nodes": 2}, "launcher": launcher}, {"argv": []})
