"""Launcher slurm on paper: the script that a job becomes, and what Slurm's answers mean."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.job.spec import JobSpec
from core.launchers.slurm import CHECKOUT, Spec, minutes, script
from core.nodes.asking import ask
from core.nodes.slurm_node import node_command
from core.nodes.slurm_words import (
    LIVE,
    Job,
    from_sacct,
    from_scontrol,
    from_squeue,
    how_it_ended,
    why_it_waits,
)
from core.runs.folder import Run

TRAINING = ["python", "-m", "core.training.worker"]
TEXTS = ("partition", "account", "qos", "reservation", "time", "gpu_type", "memory", "constraint", "exclude")


def job(hardware: dict[str, Any] | None = None, **launcher: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "model": "m",
            "data": "d.jsonl",
            "stage": "sft",
            "hardware": hardware or {},
            "launcher": {"name": "slurm", **launcher},
        }
    )


def directives(text: str) -> dict[str, str]:
    """The options of the #SBATCH lines, as sbatch reads them: up to the first line that is a command."""
    lines = text.splitlines()
    first = next(place for place, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])
    found = [
        line.removeprefix("#SBATCH --").partition("=") for line in lines[:first] if line.startswith("#SBATCH")
    ]
    assert len({name for name, _, _ in found}) == len(found)
    return {name: value for name, _, value in found}


def test_every_field_is_an_option_of_the_script():
    told = script(
        job(
            {"nodes": 3, "devices": 4},
            partition="gpu,long",
            account="ab-c",
            qos="high",
            reservation="r1",
            time="2-00:00:00",
            gpu_type="a100",
            cpus_per_task=8,
            memory="64G",
            constraint="fast&ib",
            exclude="n[1-3]",
            modules=["cuda/12.8", "gcc"],
        ),
        TRAINING,
        Path("/home/me/factory/runs/x"),
    )
    assert directives(told) == {
        "job-name": "factory",
        "nodes": "3",
        "ntasks-per-node": "1",
        "gpus-per-node": "a100:4",
        "cpus-per-task": "8",
        "mem": "64G",
        "partition": "gpu,long",
        "account": "ab-c",
        "qos": "high",
        "reservation": "r1",
        "time": "2-00:00:00",
        "constraint": "fast&ib",
        "exclude": "n[1-3]",
        "output": "log.txt",
        "open-mode": "append",
        "no-requeue": "",
        "signal": "URG@120",
    }
    assert told.startswith("#!/bin/bash -l\n")
    assert "\nmodule load cuda/12.8\nmodule load gcc\n" in told
    assert "srun --kill-on-bad-exit=1 --cpus-per-task 8 " in told


def test_a_field_that_is_empty_leaves_the_cluster_its_default():
    told = directives(script(job(gpus=False), TRAINING, "/r"))
    assert set(told) == {
        "job-name",
        "nodes",
        "ntasks-per-node",
        "output",
        "open-mode",
        "no-requeue",
        "signal",
    }


@pytest.mark.parametrize("folder", ["/a b/r", "/a'b/$(touch x)", '/"; rm -r x; "/r', "/ü/`id`", "/a\\b"])
def test_a_run_folder_is_one_word_of_the_script_whatever_it_is_called(folder):
    last = script(job(), TRAINING, folder).splitlines()[-1]
    assert shlex.split(last)[-1] == folder
    program = "printf '%s' " + last.rpartition("slurm_node ")[2]
    assert (
        subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout == folder
    )


@given(field=st.sampled_from(TEXTS), value=st.text(max_size=40))
def test_no_value_can_leave_its_line_or_be_a_second_option(field, value):
    told = _accepted({field: value})
    if told is not None:
        assert directives(told)[{"memory": "mem", "gpu_type": "gpus-per-node"}.get(field, field)].startswith(
            value
        )
        assert not set(value) & set(" \t\r\n\v\f#\"'\\$`;<>\0") and value.isprintable() and value.isascii()
        assert len(told.splitlines()) == len(script(job(), TRAINING, "/r").splitlines()) + (
            field != "gpu_type"
        ) - (field == "time" and minutes(value) < 10)


@given(name=st.text(max_size=30))
def test_no_module_is_more_than_a_word_for_the_shell(name):
    told = _accepted({"modules": [name]})
    if told is not None:
        line = next(line for line in told.splitlines() if line.startswith("module load"))
        assert shlex.split(line) == ["module", "load", name]
        assert line == f"module load {name}" and not name.startswith("-")


def _accepted(launcher: dict[str, Any]) -> str | None:
    try:
        return script(job(**launcher), TRAINING, "/r")
    except ValidationError:
        return None


@given(line=st.text(max_size=60))
def test_a_line_of_the_site_is_one_line_of_the_script_as_it_was_written(line):
    told = _accepted({"setup": [line]})
    if told is not None:
        assert line in told.split("\n") and "\n" not in line
        assert told.split("\n")[-3:-1] == script(job(), TRAINING, "/r").split("\n")[-3:-1]


def test_a_failing_line_of_the_site_is_told_with_an_exit_code_of_our_own(tmp_path):
    told = script(job(setup=["true", "SITE='a \"b\" $c'; (exit 3)"]), TRAINING, "/r")
    done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=False, cwd=tmp_path)
    words = "a line of launcher.modules or launcher.setup ended with exit code 3: ( exit 3 )\n"
    assert (done.returncode, done.stdout) == (1, words)


def test_a_container_sees_the_home_the_checkout_and_what_the_job_names_at_their_paths(tmp_path):
    spec = {"container": "nvcr.io#nvidia/pytorch:25.09-py3", "mounts": ["/scratch", "/a:/b:ro"]}
    one = job(**spec).model_copy(update={"model": job().model.model_copy(update={"name": "/models/x"})})
    words = shlex.split(script(one, TRAINING, tmp_path / "home" / "runs" / "r").splitlines()[-1])
    here, home = str(CHECKOUT), str(tmp_path / "home")
    assert words[:3] == ["exec", "srun", "--kill-on-bad-exit=1"]
    assert words[3:6] == [
        "--container-image=nvcr.io#nvidia/pytorch:25.09-py3",
        f"--container-mounts={here}:{here},{home}:{home},/models/x:/models/x:ro,/scratch:/scratch,/a:/b:ro",
        f"--container-workdir={here}",
    ]
    assert words[6:] == ["python3", "-m", "core.nodes.slurm_node", str(tmp_path / "home" / "runs" / "r")]
    assert "container" not in script(job(), TRAINING, "/r")


def test_the_training_in_a_container_is_the_images_own_python(tmp_path):
    training = ["/login/venv/bin/python", "-m", "core.training.worker"]
    run = Run(tmp_path)
    run.plan_json.write_text(json.dumps({"training": training}))
    for container, python in ((None, training[0]), ("a/b:1", sys.executable)):
        run.job_json.write_text(json.dumps({"launcher": {"container": container}}))
        assert node_command(run, 0, {"SLURM_NNODES": "1"}) == [python, *training[1:]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", "a b"),
        ("partition", "cpu\n#SBATCH --uid=0"),
        ("partition", "-p"),
        ("account", "$(id)"),
        ("time", "soon"),
        ("time", "1:2:3:4"),
        ("memory", "64 GB"),
        ("memory", "0"),
        ("memory", "64"),
        ("time", 0),
        ("constraint", "a;b"),
        ("exclude", "--uid=0"),
        ("gpu_type", "a100:8"),
        ("modules", ["cuda; rm -r x"]),
        ("modules", ["-h"]),
        ("cpus_per_task", 0),
        ("partition", "cpu\u2028x"),
        ("qos", "ü"),
        ("setup", ["a\nb"]),
        ("setup", ["a\rb"]),
        ("setup", ["  "]),
        ("setup", ["a\0b"]),
        ("container", "--uid=0"),
        ("container", "a b"),
        ("container", "a,b"),
        ("container", ""),
        ("mounts", ["data"]),
        ("mounts", ["/a,/etc"]),
        ("mounts", ["/a:/b:ro:x"]),
    ],
)
def test_values_that_are_more_than_a_value_are_refused(field, value):
    with pytest.raises(ValidationError):
        Spec.model_validate({"name": "slurm", field: value})


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ("90", 90),
        (90, 90),
        ("30:00", 30),
        ("1:30:00", 90),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("2-12:30:00", 3630),
    ],
)
def test_time_limits_are_read_as_slurm_reads_them(time, told):
    assert Spec(time=time) and minutes(time) == told


@pytest.mark.parametrize(("time", "tells"), [(None, True), ("10", True), ("9", False), ("1-00", True)])
def test_a_short_job_is_not_told_to_stop_before_its_time(time, tells):
    assert ("signal" in directives(script(job(time=time), TRAINING, "/r"))) == tells


# As Slurm 22.05 printed them.
RUNNING = "RUNNING|None|n[1-2]|cpu\n"
PENDING = "PENDING|Resources||cpu\n"
SCONTROL = (
    "JobId=4 JobName=factory UserId=me(1) GroupId=me(1) MCS_label=N/A Priority=4294901757 Nice=0 Account=(null) "
    "QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 "
    "ExitCode={code} RunTime=00:00:04 TimeLimit=00:01:00 Partition=cpu AllocNode:Sid=h:1 ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList={nodes} BatchHost=n1 NumNodes=2 Features=(null) Command=./slurm.sh WorkDir=/r \n"
)


def test_squeue_is_read():
    assert from_squeue(RUNNING) == Job("RUNNING", "None", "n[1-2]", "cpu")
    assert from_squeue(PENDING) == Job("PENDING", "Resources", "", "cpu")
    assert from_squeue("") is None
    assert from_squeue("slurm_load_jobs error: Invalid job id specified\n") is None


@pytest.mark.parametrize(
    ("state", "code", "exit", "signal"),
    [
        ("COMPLETED", "0:0", 0, None),
        ("FAILED", "3:0", 3, None),
        ("FAILED", "0:9", 0, 9),
        ("TIMEOUT", "0:15", 0, 15),
    ],
)
def test_scontrol_is_read(state, code, exit, signal):
    text = SCONTROL.format(state=state, reason="NonZeroExitCode", code=code, nodes="n[1-2]")
    assert from_scontrol(text) == Job(state, "NonZeroExitCode", "n[1-2]", "cpu", exit, signal)


def test_a_reason_of_several_words_is_read_whole():
    text = SCONTROL.format(state="PENDING", reason="launch failed requeued held", code="0:0", nodes="(null)")
    told = from_scontrol(text)
    assert told == Job("PENDING", "launch failed requeued held", "", "cpu", 0, None)
    assert told and "a node failed to start it" in why_it_waits(told)


def test_sacct_is_read():
    assert from_sacct("CANCELLED by 1000|0:15|n1\n") == Job("CANCELLED", "None", "n1", "", 0, 15)
    assert from_sacct("OUT_OF_MEMORY|0:125|n2\n") == Job("OUT_OF_MEMORY", "None", "n2", "", 0, 125)
    assert from_sacct("Slurm accounting storage is disabled\n") is None


@given(st.text(max_size=200))
def test_whatever_slurm_prints_is_read_or_passed_over(text):
    for read in (from_squeue, from_scontrol, from_sacct):
        told = read(text)
        assert told is None or told.state


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("PENDING", "Resources", "Resources: it waits for nodes to become free"),
        ("PENDING", "(Priority)", "Priority: jobs with higher priority go first"),
        ("PENDING", "QOSMaxGRESPerUser", "QOSMaxGRESPerUser: a limit of the account, the quality of service"),
        ("PENDING", "AssocGrpCPUMinutesLimit", "AssocGrpCPUMinutesLimit: a limit of the account"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", "ReqNodeNotAvail: nodes that it needs are down"),
        ("PENDING", "SomethingNew", "SomethingNew"),
        ("SUSPENDED", "None", "it is suspended by Slurm"),
        ("CONFIGURING", "None", "its nodes are being made ready"),
    ],
)
def test_why_a_job_waits_is_told_in_words_with_slurms_own(state, reason, words):
    told = Job(state, reason)
    assert told.waiting and told.live and why_it_waits(told).startswith(words)


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("TIMEOUT", "slurm_timeout", "Slurm job 7 on n1 reached its time limit; raise launcher.time"),
        ("OUT_OF_MEMORY", "out_of_memory", "used more memory than it had asked for; raise launcher.memory"),
        ("NODE_FAIL", "slurm_node_failed", "was ended since a node failed"),
        ("PREEMPTED", "slurm_preempted", "in favour of a job with higher priority"),
        ("BOOT_FAIL", "slurm_node_failed", "did not boot"),
    ],
)
def test_how_a_job_was_ended_is_told_in_words(state, code, words):
    told = how_it_ended("7", Job(state, nodes="n1"))
    assert told is not None and told[0] == code and words in told[1]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", *LIVE])
def test_a_job_that_ended_by_itself_speaks_for_itself(state):
    assert how_it_ended("7", Job(state)) is None


def test_a_program_that_is_missing_fails_or_sleeps_is_an_answer(tmp_path):
    assert ask(["no-such-program"]).words == "no-such-program is not installed on this machine"
    assert ask(["sleep", "5"], patience=0.2).words == "sleep did not answer within 0 s"
    assert ask(["false"]).words == "exit code 1 and no word"
    assert ask(["sh", "-c", "echo 'sbatch: error: one' >&2; echo two >&2; exit 1"]).words == "one; two"
    good = ask(["pwd"], folder=tmp_path)
    assert good.good and good.out.strip() == str(tmp_path)


def test_the_launcher_of_a_job_survives_its_file():
    told = job({"nodes": 2}, partition="cpu", modules=["a/1"])
    assert JobSpec.model_validate_json(json.dumps(told.model_dump(mode="json"))) == told
