"""Families that are not built, or not written, like Llama: mixtures of experts, and heads by another name.

Their files hold each expert for itself and call GPT-NeoX's head embed_out; in memory there is one tensor of all experts
of a layer, and a head like all others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.job.models import locate
from core.job.shape import shape_of
from core.runs import checkpoints
from core.runs.events import read_events
from core.runs.folder import Run
from tests.cpu import test_preference, test_sft
from tests.cpu.conftest import chats, next_attempt, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

LORA: dict[str, Any] = {"name": "lora", "rank": 8, "alpha": 16}
QUICK = {"max_steps": 2, "save_steps": 2, "learning_rate": 1e-2}
FOREIGN = {"Mixtral": "block_sparse_moe.experts.3.w1", "GPTNeoX": "embed_out"}
"""A name that each family's files have, and its model in memory has not."""


class Family:
    """A tiny model of a kind, and runs of two steps that tests share."""

    def __init__(self, zygote: Zygote, folder: Path, kind: str) -> None:
        self.zygote, self.folder, self.kind = zygote, folder, kind
        self.model: str = zygote.call("tests.tiny:save_tiny_kind_at", folder=str(folder / "base"), kind=kind)
        self._runs: dict[str, Path] = {}

    def run(self, method: str) -> Path:
        """The finished run of a method, trained at most once."""
        if method not in self._runs:
            data = write_rows(self.folder / "rows.jsonl", chats(30))
            spec = LORA if method == "lora" else "full"
            asked = test_sft.job(self.model, data, method=spec, train=QUICK)
            done = self.zygote.call("tests.cpu.jobs:train", job=asked, home=str(self.folder / "home"))
            assert done["code"] == 0, done["events"][-1]
            self._runs[method] = Path(done["run"])
        return self._runs[method]

    def weights(self, folder: Path) -> dict[str, str]:
        """A digest per tensor of a folder."""
        found: dict[str, str] = self.zygote.call("tests.cpu.jobs:weights", folder=str(folder))
        return found

    def export(self, method: str, **more: Any) -> dict[str, Any]:
        """A merged model of a run."""
        made: dict[str, Any] = self.zygote.call(
            "tests.cpu.exports:make", run=str(self.run(method)), spec={"name": "merged"}, **more
        )
        return made


@pytest.fixture(scope="module")
def families(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """One of each."""
    return {kind: Family(zygote, tmp_path_factory.mktemp(kind), kind) for kind in FOREIGN}


@pytest.fixture
def experts(families: dict[str, Family]) -> str:
    """Folder of a tiny Mixtral."""
    return families["Mixtral"].model


@pytest.mark.parametrize(("kind", "method"), [("Mixtral", "lora"), ("GPTNeoX", "full")])
def test_what_is_exported_has_the_familys_names_and_verifies(
    families: dict[str, Family], kind: str, method: str
) -> None:
    made = families[kind].export(method)
    assert made["state"] == "done", made["error"]
    base, merged = (families[kind].weights(folder) for folder in (families[kind].model, made["path"]))
    assert base.keys() == merged.keys()
    changed = [name for name in base if base[name] != merged[name]]
    assert any(FOREIGN[kind] in name for name in changed) and json.dumps(made["verified_by"]).count("equal")


def test_an_expert_that_was_written_wrong_is_named(families: dict[str, Family]) -> None:
    made = families["Mixtral"].export("lora", fault="merged:expert")
    assert made["state"] == "failed" and made["error"]["code"] == "export_not_verified"
    assert "layers.1.block_sparse_moe.experts.3.w1" in made["error"]["message"]


def test_the_forecast_counts_the_adapters_of_experts_and_router(families: dict[str, Family]) -> None:
    run = families["Mixtral"].run("lora")
    start = next(event for event in read_events(run / "events.jsonl")[0] if event.event == "start")
    shape = shape_of(locate(families["Mixtral"].model, run.parent))
    assert shape is not None and start.trainable == shape.adapter(LORA["rank"], "all-linear")
    tensors = families["Mixtral"].weights(run / "model")
    assert any("experts" in name for name in tensors) and any("mlp.gate" in name for name in tensors)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_resumed_run_goes_on_with_all_its_weights(families: dict[str, Family], kind: str) -> None:
    """After its last step it only saves the model: what is not read from the checkpoint would be the base's."""
    run = Run(families[kind].run("full"))
    before = families[kind].weights(run.model)
    checkpoints.discard(run.model)
    next_attempt(run, 2)
    done = families[kind].zygote.call("tests.cpu.jobs:work", run_dir=str(run.path))
    assert done["code"] == 0, done["events"][-1]
    assert families[kind].weights(run.model) == before


@pytest.mark.parametrize(("stage", "method"), [("sft", "full"), ("sft", "lora"), ("dpo", "full")])
def test_without_padding_and_fused_the_losses_are_those_of_plain_trl(
    zygote: Zygote, experts: str, home: Path, tmp_path: Path, stage: str, method: str
) -> None:
    spec = LORA if method == "lora" else "full"
    theirs: dict[str, Any] = {
        "model": experts,
        "out": str(tmp_path / "trl"),
        "settings": {**test_sft.TRL, "max_steps": 2},
        "lora": {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0} if method == "lora" else None,
    }
    if stage == "sft":
        rows = chats(30)
        asked = test_sft.job(experts, write_rows(tmp_path / "rows.jsonl", rows), method=spec)
        plain = zygote.call("tests.cpu.jobs:plain_trl_sft", rows=rows, **theirs)
    else:
        rows, template = test_preference.pairs(30), tmp_path / "tight.jinja"
        template.write_text(TIGHT, "utf-8")
        data = write_rows(tmp_path / "rows.jsonl", rows)
        asked = test_preference.job(experts, data, {"name": stage}, str(template), method=spec)
        plain = zygote.call("tests.cpu.jobs:plain_trl_preference", stage=stage, rows=rows, **theirs)
    asked["train"] |= {"max_steps": 2, "padding_free": True, "fused": True}
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert done["padding_free"]
    assert list(done["losses"].values()) == pytest.approx(plain, rel=1e-6)
    balance = [event["values"]["aux_loss"] for event in done["events"] if event["event"] == "metric"]
    assert len(balance) == 2 and all(one > 1 for one in balance)
