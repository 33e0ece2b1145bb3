"""What `factory check` finds on a machine, and on which it keeps silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.job.checks import Case, bytes_needed, check, refuse_errors
from core.job.load import parse_job
from core.job.machine import Gpu, Machine
from data.errors import FactoryError, Finding

CPU = Machine("Linux", "3.11", cores=2, memory=2**34, memory_free=2**33)
OLD_GPU = Machine("Linux", "3.11", 8, 2**36, 2**35, gpus=(Gpu(0, "Tesla T4", 2**34, 2**34, 7.5, "550"),))
NEW_GPU = Machine("Linux", "3.11", 8, 2**36, 2**35, gpus=(Gpu(0, "H200", 2**37, 2**37, 9.0, "550"),))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    chats = (
        [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}."}] for n in range(20)
    )
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return path


def found(text: str, rows: Path, machine: Machine = CPU, home: Path | None = None) -> dict[str, Finding]:
    """Findings by code for a job of three lines and `text`."""
    model = "" if text.startswith("model:") else "model: smollm2-135m\n"
    job = parse_job(f"{model}data: {rows}\nstage: sft\n{text}\n")
    return {one.code: one for one in check(job, machine, home or rows.parent / "home")}


def test_a_sound_job_has_no_findings(rows):
    assert found("", rows) == {}


@pytest.mark.parametrize(
    ("text", "machine", "code", "level"),
    [
        ("train: {keep_best: true}", CPU, "keep_best_without_eval", "error"),
        ("train: {eval_steps: 5}", CPU, "eval_steps_without_eval", "warning"),
        ("train: {epochs: 2, max_steps: 5}", CPU, "epochs_and_max_steps", "warning"),
        ("train: {max_steps: 10, warmup: 10}", CPU, "warmup_all_the_way", "warning"),
        ("train: {learning_rate: 0}", CPU, "learning_rate_zero", "warning"),
        ("train: {learning_rate: 1e-2}", CPU, "learning_rate_high", "warning"),
        ("train: {learning_rate: 1e-3}\nmethod: full", CPU, "learning_rate_high", "warning"),
        ("hardware: {devices: [1]}", NEW_GPU, "device_missing", "error"),
        ("hardware: {devices: [1]}", CPU, "device_missing", "error"),
        ("hardware: {precision: fp16}", CPU, "fp16_on_cpu", "error"),
        ("hardware: {precision: bf16}", CPU, "bf16_on_cpu", "warning"),
        ("hardware: {precision: bf16}", OLD_GPU, "bf16_unsupported", "error"),
        (
            "model: {name: smollm2-135m, attention: flash_attention_2}",
            CPU,
            "flash_attention_missing",
            "error",
        ),
        ("model: {name: smollm2-135m, revision: main}", CPU, "revision_without_hub", "error"),
        ("model: {name: smollm2-135m, adapter: no/such/folder}", CPU, "adapter_not_found", "error"),
        ("model: {name: smollm2-135m, template: chatmll}", CPU, "template_not_found", "error"),
        ("model: smollm2-135mm", CPU, "model_not_found", "error"),
        ("model: org/name", CPU, "model_to_download", "note"),
    ],
)
def test_what_would_go_wrong_is_found_first(rows, monkeypatch, text, machine, code, level):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(rows.parent / "empty-cache"))
    finding = found(text, rows, machine)[code]
    assert finding.level == level
    assert finding.message.endswith((".", "?")) and finding.field


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("hardware: {devices: [0]}", CPU),
        ("hardware: {devices: [0], precision: bf16}", NEW_GPU),
        ("hardware: {precision: fp16}", OLD_GPU),
        ("train: {max_steps: 10, warmup: 3, learning_rate: 2e-4}", CPU),
    ],
)
def test_what_is_fine_is_not_remarked_on(rows, text, machine):
    assert found(text, rows, machine) == {}


def test_a_rate_for_fine_tuning_is_too_high_for_a_preference_stage(rows):
    text = f"model: smollm2-135m\ndata: {rows}\nstage: dpo\ntrain: {{learning_rate: 2e-4}}\n"
    found_codes = {one.code for one in check(parse_job(text), CPU, rows.parent / "home")}
    assert "learning_rate_of_sft" in found_codes


def test_a_fix_settles_its_finding(rows):
    for text in (
        "train: {keep_best: true}",
        "hardware: {precision: fp16}",
        "train: {max_steps: 4, warmup: 9}",
    ):
        ((code, finding),) = found(text, rows).items()
        overrides = [f"{field}={json.dumps(value)}" for field, value in (finding.fix or {}).items()]
        job = parse_job(f"model: smollm2-135m\ndata: {rows}\nstage: sft\n{text}\n", overrides)
        assert code not in {one.code for one in check(job, CPU, rows.parent / "home")}


def test_offline_and_uncached_is_an_error_that_names_the_switch(rows, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(rows.parent / "empty-cache"))
    finding = found("model: org/name", rows)["model_offline"]
    assert finding.level == "error" and "unset HF_HUB_OFFLINE" in finding.message


def test_all_that_is_wrong_with_a_model_folder_is_told_at_once(rows, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama\nimport os", "auto_map": {"a": "b.C"}})
    )
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    codes = set(found(f"model: {folder}", rows))
    assert {"model_tokenizer_missing", "model_weights_pickled"} < codes
    assert codes & {"model_wants_code", "model_config_unsafe"}


def test_missing_data_names_its_neighbour(rows, tmp_path):
    finding = found("", tmp_path / "row.jsonl")["data_not_found"]
    assert finding.field == "data.path" and "rows.jsonl" in finding.message


def test_every_source_and_the_held_out_file_are_looked_for(rows, tmp_path):
    text = (
        f"model: smollm2-135m\nstage: sft\n"
        f"data: {{sources: [{rows}, {tmp_path / 'none.jsonl'}], eval: {tmp_path / 'gone.jsonl'}}}\n"
    )
    fields = {one.field for one in check(parse_job(text), CPU, tmp_path / "home")}
    assert fields == {"data.sources[1].path", "data.eval"}


def test_a_home_that_cannot_be_made_is_an_error(rows, tmp_path):
    (tmp_path / "file").write_text("")
    assert "home_not_a_folder" in found("", rows, home=tmp_path / "file" / "home")


def test_a_full_disk_is_an_error_with_both_numbers(rows, monkeypatch):
    monkeypatch.setattr("core.job.checks.disk_free", lambda folder: 2**20)
    assert "1.0 MiB free" in found("", rows)["disk_too_small"].message


def test_disk_needed_grows_with_checkpoints_and_with_full_training(rows):
    def need(text: str) -> int:
        job = parse_job(f"model: smollm2-135m\ndata: {rows}\nstage: sft\n{text}\n")
        from core.job.models import locate

        wanted = bytes_needed(Case(job, CPU, rows.parent, locate("smollm2-135m", rows.parent)))
        assert wanted is not None
        return wanted

    assert need("") < need("train: {keep_checkpoints: 5}") < need("method: full")
    assert need("method: full") == 134_515_008 * (3 * 12 + 4)


def test_errors_refuse_and_warnings_do_not(rows):
    refuse_errors(list(found("train: {eval_steps: 5}", rows).values()))
    with pytest.raises(FactoryError):
        refuse_errors(list(found("train: {keep_best: true}", rows).values()))


def test_errors_come_before_warnings(rows):
    levels = [one.level for one in found("train: {keep_best: true, epochs: 1, max_steps: 2}", rows).values()]
    assert levels == ["error", "warning"]


def test_a_reward_file_that_cannot_be_loaded_is_one_sentence_without_its_traceback(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "mine.py").write_text("print('hello')\ndef reward(completions\n")
    monkeypatch.setenv("FACTORY_REWARDS_DIR", str(tmp_path))
    job = parse_job(
        "model: smollm2-135m\ndata: nothing.jsonl\nstage: grpo\nrewards: [{name: file, script: mine}]\n"
    )
    told = [one.message for one in check(job, CPU, tmp_path) if one.field == "rewards[0].script"]
    assert len(told) == 1 and "SyntaxError" in told[0] and "\n" not in told[0]
    assert capfd.readouterr() == ("", "")
