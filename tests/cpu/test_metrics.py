"""The table of what each stage logs is true, and every name in it is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.stages import STAGES
from core.training.metrics import ALWAYS, LOGGED, LOGGED_WITH, MEANING
from tests.cpu import test_online, test_ppo, test_preference, test_pretrain, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

TWO_STEPS = {"max_steps": 2}


def job_of(stage: str, model: str, folder: Path) -> dict[str, Any]:
    """A job of two steps of a stage."""
    rows = folder / "rows.jsonl"
    if stage == "sft":
        return test_sft.job(model, write_rows(rows, chats(20)), train=TWO_STEPS)
    if stage == "pretrain":
        return test_pretrain.job(model, write_rows(rows, test_pretrain.texts(20)), train=TWO_STEPS)
    if stage == "ppo":
        data = write_rows(rows, test_online.prompts(16))
        return test_ppo.job(model, data, "", rewards=[test_online.LONG], train=TWO_STEPS)
    if stage in ("grpo", "rloo"):
        return test_online.job(
            model, write_rows(rows, test_online.prompts(16)), {"name": stage}, train=TWO_STEPS
        )
    (folder / "tight.jinja").write_text(TIGHT, "utf-8")
    data = write_rows(rows, test_preference.rows_of(stage, 16))
    return test_preference.job(model, data, {"name": stage}, str(folder / "tight.jinja"), train=TWO_STEPS)


@pytest.mark.parametrize("stage", LOGGED)
def test_a_stage_logs_what_the_table_says(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, stage: str
) -> None:
    done = zygote.call("tests.cpu.jobs:train", job=job_of(stage, tiny, tmp_path), home=str(home))
    assert done["code"] == 0, done["events"][-1]
    records = [event["values"] for event in done["events"] if event["event"] == "metric"]
    logged = {name.replace("reward/length/", "reward/NAME/") for record in records for name in record}
    assert {name for name in logged if not name.startswith("eval_")} == {*ALWAYS, *LOGGED[stage]}


def test_every_stage_has_its_metrics_and_every_metric_its_meaning() -> None:
    assert {module.Spec.model_fields["name"].default for module in STAGES} == set(LOGGED)
    logged = {name for names in (*LOGGED.values(), *LOGGED_WITH.values()) for name in names}
    assert logged | set(ALWAYS) == set(MEANING)
