"""Fixes in the text of a job: the wanted field changes, comments and everything else stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cli import main
from core.job.edit import edited
from core.job.reader import read_text

JOB = """\
# A job
model: smollm2-135m   # small
data: rows.jsonl  # the rows

stage: {name: sft, max_length: 64}  # short
method:   # which
  name: lora  # small
  # rank says how much
  rank: 8
train:
hardware: {}
rewards:
  - name: length
    longest: 5  # words

# the end
"""


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("method.rank", 16, "  rank: 16"),
        ("method.alpha", 32, "  alpha: 32"),
        ("method.name", "full", "  name: full  # small"),
        ("stage.max_length", 128, "stage: {name: sft, max_length: 128}  # short"),
        ("stage.packing", True, "stage: {name: sft, max_length: 64, packing: true}  # short"),
        ("train.epochs", 2.0, "  epochs: 2.0"),
        ("train.scheduler", None, "  scheduler: null"),
        ("hardware.precision", "auto", "hardware: {precision: auto}"),
        ("data.eval", 0.05, "data: {path: rows.jsonl, eval: 0.05}  # the rows"),
        (
            "data.columns.prompt",
            "frage: x",
            'data: {path: rows.jsonl, columns: {prompt: "frage: x"}}  # the rows',
        ),
        ("model.template", "chatml", "model: {name: smollm2-135m, template: chatml}   # small"),
        ("model.name", "other", "model: other   # small"),
        ("evaluate.max_new_tokens", 5, "  max_new_tokens: 5"),
        ("name", "yes", 'name: "yes"'),
    ],
)
def test_a_field_is_changed_where_it_stands_and_comments_survive(field, value, line):
    changed = edited(JOB, {field: value})
    assert line in changed.splitlines()
    assert [one for one in comments(JOB) if one not in comments(changed)] == []


def test_a_list_of_blocks_can_be_emptied():
    changed = edited(JOB, {"rewards": []})
    assert "rewards: []  # words" in changed.splitlines() and changed.endswith("# the end\n")


def test_several_changes_of_one_part_go_together():
    changed = edited(JOB, {"train.epochs": 1.0, "train.batch_size": 2, "method": "full"})
    values = read_text(changed, "job").value
    assert values["train"] == {"epochs": 1.0, "batch_size": 2} and values["method"] == "full"


def test_a_block_becomes_a_word_and_the_comment_on_its_line_stays():
    assert edited("method:   # which\n  name: lora\n  rank: 8\n\n# end\n", {"method": "full"}) == (
        "method: full   # which\n\n# end\n"
    )


def test_a_text_without_a_last_newline_gets_one():
    assert (
        edited("model: m\nstage: sft", {"train.epochs": 1.0})
        == "model: m\nstage: sft\ntrain:\n  epochs: 1.0\n"
    )


def test_json_stays_json():
    changed = edited('{"model": "m", "stage": "sft"}', {"stage.max_length": 8}, is_json=True)
    assert json.loads(changed) == {"model": "m", "stage": {"name": "sft", "max_length": 8}}


@given(
    st.dictionaries(
        st.sampled_from(["epochs", "seed", "optimizer", "warmup"]), st.integers(0, 9), max_size=4
    ),
    st.sampled_from(["epochs", "seed", "max_steps"]),
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("ab #:{}[],'\"\\-~", max_size=8)),
    st.booleans(),
)
def test_any_value_is_read_back_as_it_was_written(fields, field, value, flow):
    inner = ", ".join(f"{name}: {one}" for name, one in fields.items())
    block = "\n".join(f"  {name}: {one}  # {name}" for name, one in fields.items())
    text = f"train: {{{inner}}}\nstage: sft # s\n" if flow else f"train:\n{block}\nstage: sft # s\n"
    values = read_text(edited(text, {f"train.{field}": value}), "job").value
    assert values == {"train": {**fields, field: value}, "stage": "sft"}


# factory check --fix


@pytest.fixture
def job(tmp_path: Path) -> Path:
    turns = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Yes."}]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"messages": [{**turns[0], "content": f"{n}?"}, turns[1]]}) + "\n" for n in range(40)
        )
    )
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: smollm2-135m\ndata: {rows} # rows\nstage: sft\ntrain:\n  keep_best: true # best\n"
    )
    return path


def test_check_fix_changes_the_file_shows_the_diff_and_checks_again(capsys, job):
    assert main(["check", str(job), "--fix"]) == 0
    out = capsys.readouterr().out
    assert "+data: {path: " in out and out.endswith(f"ok  {job} can run.\n")
    assert "eval: 0.05} # rows" in job.read_text() and "keep_best: true # best" in job.read_text()


def test_check_fix_leaves_a_sound_file_alone(capsys, job):
    job.write_text(job.read_text().replace("true", "false"))
    before = job.read_text()
    assert main(["check", str(job), "--fix"]) == 0
    assert capsys.readouterr().out.startswith("Nothing that a change") and job.read_text() == before


def test_check_fix_does_not_write_what_the_command_line_says(job):
    before = job.read_text()
    assert main(["check", str(job), "--fix", "-o", "data.eval=0.2"]) == 0
    assert job.read_text() == before
