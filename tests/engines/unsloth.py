"""What the tests of engine unsloth share: where it is installed, and a run of it by its own command."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.job.environments import ENVS, environment
from core.job.machine import CHECKOUT, Machine
from core.job.plan import make_plan
from core.job.spec import JobSpec
from core.runs.folder import Run, create_run

PLACE = Path(os.environ.get(ENVS) or Path.home() / "factory" / "envs")
"""The folder of environments: FACTORY_ENVS, else the one in the user's usual home."""
HINT = "run: factory env install unsloth"


def here() -> bool:
    """Whether the engine is installed as its file says now."""
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # asked while tests are collected: it must not stay for all of them
        patch.setenv(ENVS, str(PLACE))
        return environment("unsloth").installed(PLACE.parent)


def made(job: dict[str, Any], home: Path) -> Run:
    """A run folder for a job, resolved as the command line would on a machine without a GPU."""
    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    plan = make_plan(JobSpec.model_validate(job), home, machine)
    return create_run(home, json.dumps(job), plan.job, plan.model_dump(mode="json"))


def work(run: Run) -> dict[str, Any]:
    """Run the command of the run's plan, as the supervisor does; its exit code, losses by step, events."""
    argv = json.loads(run.plan_json.read_text("utf-8"))["argv"]
    with run.log.open("ab") as log:
        ended = subprocess.run(
            [*argv, str(run.path)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=600,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FACTORY_HOME": str(run.home)},
        )
    events = [json.loads(line) for line in run.events.read_text("utf-8").split("\n") if line]
    metrics = [(str(event["step"]), event["values"]) for event in events if event["event"] == "metric"]
    return {
        "code": ended.returncode,
        "losses": {step: values["loss"] for step, values in metrics if "loss" in values},
        "metrics": metrics,
        "events": events,
        "log": run.log.read_text("utf-8"),
        "run": str(run.path),
    }
