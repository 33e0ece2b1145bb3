"""What `factory check` says of a model's folder before anything heavy starts, and what it does not say twice."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from core.job.checks import check
from core.job.fixes import all_findings
from core.job.load import parse_job
from core.job.machine import Machine
from core.job.model_checks import _families
from data.errors import Finding

CPU = Machine("Linux", "3.11", cores=2, memory=2**34, memory_free=2**33)
CONFIG = {
    "model_type": "llama",
    "vocab_size": 8,
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
WEIGHTS = {
    "model.embed_tokens.weight": (8, 4),
    "model.layers.0.self_attn.q_proj.weight": (4, 4),
    "model.layers.0.mlp.up_proj.weight": (8, 4),
    "model.norm.weight": (4,),
}
TOKENIZER = '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'


def folder(place: Path, **config: Any) -> Path:
    """A model's folder as the checks see it: headers and small files."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (place / "tokenizer.json").write_text(TOKENIZER)
    header, end = {}, 0
    for name, size in WEIGHTS.items():
        length = 4 * size[0] * (size[1] if len(size) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": list(size), "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    (place / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return place


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Twenty texts with answers."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}?", "completion": f"{n}."}) + "\n" for n in range(20)))
    return path


def found(model: Path, rows: Path, more: str = "") -> dict[str, Finding]:
    """Errors of a job on that model, by code."""
    job = parse_job(f"model: {{name: {json.dumps(str(model))}}}\ndata: {rows}\nstage: sft\n{more}\n")
    return {one.code: one for one in check(job, CPU, rows.parent / "home") if one.level == "error"}


def test_a_whole_folder_is_no_news(tmp_path: Path, rows: Path) -> None:
    assert found(folder(tmp_path / "m"), rows) == {}


@pytest.mark.parametrize("value", ["abc", 0, -3, 1.5, None, True, [8]])
def test_a_size_that_is_no_number_is_told(tmp_path: Path, rows: Path, value: object) -> None:
    finding = found(folder(tmp_path / "m", vocab_size=value), rows)["model_config_broken"]
    assert f"vocab_size = {json.dumps(value)}" in finding.message


def test_an_unknown_family_is_told_with_the_nearest(tmp_path: Path, rows: Path) -> None:
    finding = found(folder(tmp_path / "m", model_type="lama"), rows)["model_type_unknown"]
    assert "'lama'" in finding.message
    assert "the nearest it knows is llama" in finding.message


def test_the_families_are_those_of_the_library() -> None:
    known = _families()
    assert {"llama", "qwen3", "gemma2", "gpt2", "mistral", "deepseek_v3", "gemma3_text"} <= set(known)
    assert len(known) > 300


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', "\x00"])
def test_a_broken_tokenizer_is_told(tmp_path: Path, rows: Path, text: str) -> None:
    place = folder(tmp_path / "m")
    (place / "tokenizer.json").write_text(text)
    assert "tokenizer_broken" in found(place, rows)


def test_a_chat_template_that_does_not_compile_is_told_with_its_file(tmp_path: Path, rows: Path) -> None:
    place = folder(tmp_path / "m")
    (place / "chat_template.jinja").write_text("{% for m in messages %}{{ m }}")
    finding = found(place, rows)["template_broken"]
    assert str(place / "chat_template.jinja") in finding.message


def test_a_template_with_marks_of_the_assistants_words_compiles(tmp_path: Path, rows: Path) -> None:
    place = folder(tmp_path / "m")
    (place / "chat_template.jinja").write_text("{% generation %}a{% endgeneration %}")
    assert found(place, rows) == {}


@pytest.mark.parametrize("field", ["target", "modules_to_save"])
def test_a_module_that_the_model_does_not_have_is_told_with_those_it_has(
    tmp_path: Path, rows: Path, field: str
) -> None:
    more = f"method: {{name: lora, {field}: [q_prj, up_proj]}}"
    finding = found(folder(tmp_path / "m"), rows, more)["module_not_found"]
    assert finding.field == f"method.{field}"
    assert "'q_prj'" in finding.message
    assert "did you mean 'q_proj'?" in finding.message
    assert finding.params["linear"] == ["q_proj", "up_proj"]


def test_heads_and_embeddings_may_be_saved_also_where_they_share_weights(tmp_path: Path, rows: Path) -> None:
    more = "method: {name: lora, target: [q_proj], modules_to_save: [lm_head, embed_tokens]}"
    assert found(folder(tmp_path / "m"), rows, more) == {}


def test_of_a_family_whose_weights_are_renamed_nothing_is_claimed(tmp_path: Path, rows: Path) -> None:
    place = folder(tmp_path / "m", model_type="mixtral")
    assert "module_not_found" not in found(place, rows, "method: {name: lora, target: [gate_up_proj]}")


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (
            "data: {path: ROWS, eval: true}\nstage: sft\ntrain: {keep_best: true, eval_steps: 3}",
            ["wrong_type"],
        ),
        ("data: PROMPTS\nstage: grpo\nrewards: [os.system]", ["not_allowed"]),
        (
            "data: PROMPTS\nstage: grpo\nrewards: [{name: judge, url: 'http://x/v1', model: m}]",
            ["unknown_field"],
        ),
    ],
)
def test_what_only_follows_from_a_refused_field_is_not_told(
    tmp_path: Path, rows: Path, text: str, codes: list[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{n}?", "answer": str(n)}) + "\n" for n in range(20)))
    text = text.replace("ROWS", str(rows)).replace("PROMPTS", str(prompts))
    job = f"model: {folder(tmp_path / 'm')}\n{text}"
    told = all_findings(job, CPU, tmp_path / "home", lambda one: one)
    assert [one.code for one in told if one.level == "error"] == codes


@pytest.mark.parametrize(
    ("stage", "meant"), [("sft", "stage.max_length"), ("grpo", "stage.max_prompt_length")]
)
def test_a_foreign_name_of_the_longest_row_is_given_as_the_stage_calls_it(
    tmp_path: Path, rows: Path, stage: str, meant: str
) -> None:
    job = f"model: m\ndata: {rows}\nstage: {{name: {stage}, cutoff_len: 9}}\nrewards: [accuracy]"
    told = all_findings(job, CPU, tmp_path / "home", lambda one: one)
    assert next(one for one in told if one.code == "unknown_field").params["nearest"] == meant


def test_prompts_that_are_all_too_long_name_the_prompts_own_limit() -> None:
    from collections import Counter

    from data.report import Tally, limit_of, nothing_left

    tally = Tally(read=3, reasons=Counter(too_long=3))
    assert "raise stage.max_prompt_length" in str(nothing_left([tally], limit=limit_of(["prompt"])))
    assert "raise stage.max_length" in str(nothing_left([tally], limit=limit_of(["messages", "text"])))
