"""Every CPU-sized recipe in templates/jobs really runs: here for two steps on a tiny model, in --slow as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.job.load import load_job
from core.job.machine import CHECKOUT
from tests.zygote import Zygote

RECIPES = sorted(
    path for path in (CHECKOUT / "templates" / "jobs").glob("*.yaml") if not path.stem.endswith("-gpu")
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_on_a_tiny_model(zygote: Zygote, tiny: str, home: Path, recipe: Path) -> None:
    job = load_job(recipe, [f"model.name={tiny}", "train.max_steps=2", "evaluate.max_new_tokens=2"])
    done = zygote.call("tests.cpu.jobs:train", job=json.loads(job.model_dump_json()), home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert (Path(done["run"]) / "model" / "COMPLETE.json").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_as_it_is(zygote: Zygote, home: Path, recipe: Path) -> None:
    done = zygote.call(
        "tests.cpu.jobs:train", job=json.loads(load_job(recipe).model_dump_json()), home=str(home)
    )
    assert done["code"] == 0, done["events"][-1]
