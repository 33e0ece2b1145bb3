"""Every CPU-sized recipe in templates/jobs really runs: here for two steps on a tiny model, in --slow as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.job.load import load_job
from core.job.machine import CHECKOUT
from core.job.spec import JobSpec
from tests.zygote import Zygote

RECIPES = sorted(
    path for path in (CHECKOUT / "templates" / "jobs").glob("*.yaml") if not path.stem.endswith("-gpu")
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_on_a_tiny_model(zygote: Zygote, tiny: str, home: Path, recipe: Path) -> None:
    job = load_job(recipe, [f"model.name={tiny}", "train.max_steps=2", "evaluate.max_new_tokens=2"])
    done = run(zygote, job, home)
    assert (Path(done["run"]) / "model" / "COMPLETE.json").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_as_it_is(zygote: Zygote, home: Path, recipe: Path) -> None:
    run(zygote, load_job(recipe), home)


def run(zygote: Zygote, job: JobSpec, home: Path) -> dict[str, Any]:
    """Train a job in as many processes as it asks for."""
    plain, count = json.loads(job.model_dump_json()), job.hardware.processes
    if count > 1:
        done = zygote.call("tests.worlds:train", job=plain, home=str(home), processes=count)
        assert done["codes"] == [0] * count, done["errors"]
    else:
        done = zygote.call("tests.cpu.jobs:train", job=plain, home=str(home))
        assert done["code"] == 0, done["events"][-1]
    return dict(done)
