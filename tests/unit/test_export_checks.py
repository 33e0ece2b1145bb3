"""What a job's exports cannot be, told by the checks before hours of training; and the room they take."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from core.export import TARGETS, target_names
from core.export.base import Facts
from core.job.checks import check
from core.job.exports import checked_export, export_bytes, findings
from core.job.load import check_values, parse_job
from core.job.machine import Machine
from core.job.spec import JobSpec
from core.runs.checkpoints import job_hash
from data.errors import FactoryError

MACHINE = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)


def job(*exports: Any, stage: str = "sft", method: str = "lora") -> JobSpec:
    """A job with these exports."""
    values = {"model": "smollm2-135m", "data": "rows.jsonl", "stage": stage, "method": method}
    return check_values({**values, "export": list(exports)})


def codes(asked: JobSpec, model_type: str | None = "llama") -> list[str]:
    """The codes of what is wrong with a job's exports."""
    return [one.code for one in findings(asked, model_type)]


@pytest.fixture(autouse=True)
def _no_token_and_no_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llama_cpp" else real(name))


def test_a_bare_name_is_an_export_and_every_target_has_one():
    asked = job(*[name for name in target_names()])
    assert [one.name for one in asked.export] == list(target_names())
    assert codes(asked) == []


@pytest.mark.parametrize(
    ("asked", "model_type", "code"),
    [
        (job("adapter", method="full"), "llama", "export_without_adapter"),
        (job("gguf", stage="reward"), "llama", "export_of_a_classifier"),
        (job("ollama", stage="reward"), "llama", "export_of_a_classifier"),
        (job("gguf"), "gemma3", "export_architecture"),
        (job({"name": "gguf", "quant": "q4_k_m"}), "llama", "export_quant_missing"),
        (job({"name": "hub", "repo": "me/mine"}), "llama", "hub_token_missing"),
        (job({"name": "hub", "content": "adapter"}, method="full"), "llama", "export_without_adapter"),
        (job({"name": "merged", "checkpoint": 5}), "llama", "export_checkpoint_in_job"),
        (job("merged", "merged"), "llama", "export_twice"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(asked, model_type, code):
    found = list(findings(asked, model_type))
    assert [one.code for one in found] == [code]
    assert found[0].field is not None and found[0].field.startswith("export[")
    assert found[0].message[0].isupper() or found[0].message.startswith("export[")


def test_the_checks_of_a_job_hold_its_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 20, "utf-8")
    values = {"model": "smollm2-135m", "data": str(tmp_path / "rows.jsonl"), "stage": "sft"}
    asked = check_values({**values, "export": [{"name": "gguf", "quant": "q4_k_m"}]})
    told = [one for one in check(asked, MACHINE, tmp_path / "home") if one.code.startswith("export")]
    assert [(one.code, one.field, one.level) for one in told] == [
        ("export_quant_missing", "export[0].quant", "error")
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "mergd"}, "There is no export 'mergd'"),
        ({"name": "merged", "quant": "q8_0"}, "it is for gguf, ollama, hub"),
        ({"name": "gguf", "quant": "q9"}, "q9"),
        ({"name": "merged", "shard_size": 0.0}, "above 0"),
        ({"name": "hub", "repo": "no slash"}, "org/name"),
    ],
)
def test_a_wrong_export_is_refused_in_words(values, words):
    with pytest.raises(FactoryError, match=words):
        checked_export(values)


def test_exports_take_room_in_the_forecast_and_change_no_fingerprint():
    asked = job("merged", {"name": "merged", "dtype": "bf16"}, "gguf", "card")
    assert export_bytes(asked, 1000, 10) == 4000 + 2000 + round(1000 * 8.5 / 8) + (1 << 20)
    plain = job()
    assert job_hash(asked.model_dump(mode="json")) == job_hash(plain.model_dump(mode="json"))
    old = {key: value for key, value in plain.model_dump(mode="json").items() if key != "export"}
    assert job_hash(old) == job_hash(plain.model_dump(mode="json"))


@pytest.mark.parametrize("module", TARGETS, ids=lambda module: module.__name__)
def test_every_target_says_who_verifies_it_and_how_large_it_gets(module):
    assert module.VERIFIED and module.size(module.Spec(), 1000, 10) > 0
    assert list(module.refusals(module.Spec(), Facts("sft", "lora", "llama"))) == []


def test_a_job_without_exports_reads_as_before():
    assert parse_job("model: smollm2-135m\ndata: rows.jsonl\nstage: sft\n").export == []
