"""Mixtures of experts: trained as plain trl trains them, with the loss that keeps all experts in work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpu import test_preference, test_sft
from tests.cpu.conftest import chats, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

LORA = {"name": "lora", "rank": 8, "alpha": 16}


@pytest.fixture(scope="module")
def experts(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny Mixtral."""
    folder = str(tmp_path_factory.mktemp("experts") / "mixtral")
    return str(zygote.call("tests.tiny:save_tiny_kind_at", folder=folder, kind="Mixtral"))


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
