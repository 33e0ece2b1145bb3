"""Every stage with every method, as the table in the README says: it trains, and the model is whole.

full and lora are compared with plain trl in the stages' own tests; here are the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.methods import METHODS
from core.stages import STAGES
from tests.cpu import test_online
from tests.cpu.test_metrics import job_of
from tests.zygote import Zygote

COMPARED = ("full", "lora")
NAMES = [module.Spec.model_fields["name"].default for module in METHODS]
GRID = [
    (module.Spec.model_fields["name"].default, method)
    for module in STAGES
    for method in NAMES
    if method not in COMPARED and module.Spec.model_fields["name"].default != "ppo"
]


@pytest.mark.parametrize(("stage", "method"), GRID)
def test_a_stage_trains_with_a_method(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    asked = {**job_of(stage, tiny, tmp_path), "method": method}
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert "rewards" not in asked or test_online.taught(done)
    names = {path.name for path in (Path(done["run"]) / "model").iterdir()}
    assert names & {"adapter_model.safetensors", "model.safetensors"} and "COMPLETE.json" in names
