"""What `factory check` finds in the rows, in batches and in steps: each with its code, its numbers and its fix."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from core.job.batch_checks import _batch_that_fits
from core.job.checks import check
from core.job.load import parse_job
from core.job.machine import Machine
from data.errors import Finding
from data.look import look

CPU = Machine("Linux", "3.11", cores=2, memory=2**36, memory_free=2**35)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def feedback(good: int, bad: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Is {n} a number?", "completion": f"Yes, {n}.", "label": n < good}
        for n in range(good + bad)
    ]


def pairs(prompt: str = "Why?", count: int = 80) -> list[dict[str, Any]]:
    return [{"prompt": f"{prompt} {n}", "chosen": f"So {n}.", "rejected": f"No {n}!"} for n in range(count)]


def chats(answer: str = "Fine.", question: str = "How are you?", count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"{n} {question}"},
                {"role": "assistant", "content": answer},
            ]
        }
        for n in range(count)
    ]


def prompts(count: int = 80, length: int = 3) -> list[dict[str, Any]]:
    return [{"prompt": f"{n} " + "word " * length, "answer": str(n)} for n in range(count)]


LENGTH = "rewards: [{name: length}]"
ROWS = {
    "chats": chats(),
    "pairs": pairs(),
    "feedback": feedback(40, 40),
    "good": feedback(80, 0),
    "one-sided": feedback(64, 16),
    "prompts": prompts(),
    "few prompts": prompts(2),
    "long prompts": prompts(80, 2000),
    "long chats": chats("word " * 3000),
    "very long chats": chats("word " * 12000, count=20),
    "long questions": chats("word", "word " * 3000),
    "long alike pairs": [
        {"prompt": f"{n}?", "chosen": "so " * 3000 + "a", "rejected": "so " * 3000 + "b"} for n in range(40)
    ],
}


def found(tmp_path: Path, rows: str, text: str) -> dict[str, Finding]:
    file = write(tmp_path / "rows.jsonl", ROWS[rows])
    job = parse_job(f"model: smollm2-135m\ndata: {file}\n{text}\n")
    return {one.code: one for one in check(job, CPU, tmp_path / "home")}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("chats", "stage: sft"),
        ("pairs", "stage: dpo"),
        ("pairs", "stage: reward"),
        ("pairs", "stage: orpo"),
        ("feedback", "stage: kto"),
        ("prompts", f"stage: grpo\n{LENGTH}"),
        ("prompts", f"stage: rloo\n{LENGTH}"),
        ("prompts", f"stage: ppo\n{LENGTH}"),
        ("pairs", "stage: dpo\ntrain: {learning_rate: 1e-5}"),
        ("prompts", f"stage: grpo\n{LENGTH}\ntrain: {{batch_size: 4, gradient_accumulation: 4}}"),
    ],
)
def test_a_sound_job_of_every_stage_has_no_findings(tmp_path, rows, text):
    assert found(tmp_path, rows, text) == {}


@pytest.mark.parametrize(
    ("rows", "text", "code", "level", "field"),
    [
        ("good", "stage: kto", "kto_one_sided", "warning", "data"),
        ("one-sided", "stage: kto", "kto_unbalanced", "warning", "stage.undesirable_weight"),
        ("feedback", "stage: kto\ntrain: {batch_size: 1}", "kto_batch_of_one", "error", "train.batch_size"),
        (
            "pairs",
            "stage: dpo\ntrain: {batch_size: 4, gradient_accumulation: 2, global_batch_size: 24}",
            "global_batch_contradicts",
            "error",
            "train.global_batch_size",
        ),
        (
            "pairs",
            "stage: dpo\ntrain: {batch_size: 8, global_batch_size: 4}",
            "global_batch_uneven",
            "error",
            "train.global_batch_size",
        ),
        ("long prompts", f"stage: grpo\n{LENGTH}", "prompts_too_long", "warning", "stage.max_prompt_length"),
        ("long questions", "stage: sft", "prompts_too_long", "warning", "stage.max_length"),
        ("long chats", "stage: sft", "answers_cut", "warning", "stage.max_length"),
        (
            "long questions",
            "stage: {name: sft, max_length: 8192}",
            "little_taught",
            "warning",
            "stage.train_on",
        ),
        ("long alike pairs", "stage: dpo", "pairs_same_when_cut", "warning", "stage.max_length"),
        (
            "prompts",
            "stage: grpo\nrewards: [{name: length, tasks: [a]}]",
            "reward_column_missing",
            "error",
            "rewards[0]",
        ),
        (
            "prompts",
            f"stage: grpo\n{LENGTH}\ntrain: {{batch_size: 4, gradient_accumulation: 3}}",
            "batch_not_in_groups",
            "error",
            "train.gradient_accumulation",
        ),
        ("few prompts", f"stage: grpo\n{LENGTH}", "fewer_rows_than_a_batch", "error", "train.batch_size"),
        ("few prompts", f"stage: ppo\n{LENGTH}", "fewer_rows_than_a_batch", "error", "train.batch_size"),
        (
            "chats",
            "stage: sft\ntrain: {batch_size: 64}",
            "fewer_rows_than_a_batch",
            "warning",
            "train.batch_size",
        ),
        (
            "chats",
            "stage: sft\ntrain: {epochs: 1, warmup: 30}",
            "warmup_all_the_way",
            "warning",
            "train.warmup",
        ),
        (
            "chats",
            "stage: sft\ntrain: {logging_steps: 500}",
            "logging_after_the_end",
            "note",
            "train.logging_steps",
        ),
        (
            "pairs",
            "stage: dpo\ntrain: {learning_rate: 2e-4}",
            "learning_rate_of_sft",
            "warning",
            "train.learning_rate",
        ),
        (
            "pairs",
            "stage: orpo\ntrain: {learning_rate: 1e-4}",
            "learning_rate_of_sft",
            "warning",
            "train.learning_rate",
        ),
        (
            "very long chats",
            "stage: {name: sft, max_length: 100000}",
            "longer_than_the_model",
            "warning",
            "stage.max_length",
        ),
    ],
)
def test_what_would_go_wrong_is_told_with_its_field(tmp_path, rows, text, code, level, field):
    finding = found(tmp_path, rows, text)[code]
    assert (finding.level, finding.field) == (level, field)
    assert any(letter.isdigit() for letter in finding.message) or code == "reward_column_missing"


@pytest.mark.parametrize(
    ("rows", "text", "code"),
    [
        ("one-sided", "stage: kto", "kto_unbalanced"),
        ("feedback", "stage: kto\ntrain: {batch_size: 1}", "kto_batch_of_one"),
        (
            "prompts",
            f"stage: grpo\n{LENGTH}\ntrain: {{batch_size: 4, gradient_accumulation: 3}}",
            "batch_not_in_groups",
        ),
        ("pairs", "stage: dpo\ntrain: {learning_rate: 2e-4}", "learning_rate_of_sft"),
        ("chats", "stage: sft\ntrain: {logging_steps: 500}", "logging_after_the_end"),
    ],
)
def test_a_fix_settles_its_finding(tmp_path, rows, text, code):
    fix = found(tmp_path, rows, text)[code].fix
    assert fix
    file = tmp_path / "rows.jsonl"
    changed = parse_job(
        f"model: smollm2-135m\ndata: {file}\n{text}\n", [f"{k}={json.dumps(v)}" for k, v in fix.items()]
    )
    assert code not in {one.code for one in check(changed, CPU, tmp_path / "home")}


def test_a_data_shape_that_does_not_fit_names_the_stages_it_fits(tmp_path):
    messages = [
        one.message for one in found(tmp_path, "pairs", "stage: kto").values() if one.level == "error"
    ]
    assert messages and "dpo" in messages[0]


def test_a_chat_for_a_model_without_a_template_is_refused_with_one(tmp_path, tiny):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    file = write(tmp_path / "rows.jsonl", chats())
    codes = {
        one.code: one
        for one in check(parse_job(f"model: {folder}\ndata: {file}\nstage: sft\n"), CPU, tmp_path)
    }
    assert codes["template_missing"].fix == {"model.template": "chatml"}
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    codes = {
        one.code: one
        for one in check(parse_job(f"model: {folder}\ndata: {file}\nstage: sft\n"), CPU, tmp_path)
    }
    assert codes["template_without_end"].level == "note"


def test_quantised_weights_cannot_be_trained_in_full(tmp_path, tiny):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text()) | {
        "quantization_config": {"quant_method": "gptq"}
    }
    (folder / "config.json").write_text(json.dumps(config))
    file = write(tmp_path / "rows.jsonl", chats())
    text = f"model: {folder}\ndata: {file}\nstage: sft\nmethod: full\n"
    assert "quantised_and_full" in {one.code for one in check(parse_job(text), CPU, tmp_path)}


# Sampling


def test_a_large_file_is_sampled_and_says_so_and_full_reads_all(tmp_path):
    file = tmp_path / "rows.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for number in range(30_000):
            long = "word " * (4000 if number == 29_999 else 60)
            out.write(json.dumps({"prompt": f"{number}?", "completion": long}) + "\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = look({"path": str(file)}, ("completion",), "sft")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (seen.rows, seen.whole) == (200, False) and seen.longest < 400
    assert after.ru_utime - before.ru_utime < 2.0
    full = look({"path": str(file)}, ("completion",), "sft", full=True)
    assert (full.rows, full.whole) == (30_000, True) and full.longest > 19_000
    job = parse_job(f"model: smollm2-135m\ndata: {file}\nstage: sft\n")
    told = {one.code: one.message for one in check(job, CPU, tmp_path / "home")}
    assert "first 200 rows" in told["data_sampled"] and "--full" in told["data_sampled"]
    assert "data_sampled" not in {one.code for one in check(job, CPU, tmp_path / "home", full=True)}


@pytest.mark.parametrize(
    ("answers", "group", "size", "accumulation", "fits"),
    [
        (8, 1, 4, 16, (4, 2)),
        (3, 1, 4, 16, (3, 1)),
        (64, 8, 8, 16, (8, 8)),
        (20, 8, 4, 16, (4, 4)),
        (12, 8, 16, 4, (8, 1)),
    ],
)
def test_the_batch_offered_for_few_rows_is_the_largest_of_whole_groups(
    answers: int, group: int, size: int, accumulation: int, fits: tuple[int, int]
) -> None:
    assert _batch_that_fits(answers, group, size, accumulation) == fits
    assert fits[0] * fits[1] <= answers and fits[0] * fits[1] % group == 0
