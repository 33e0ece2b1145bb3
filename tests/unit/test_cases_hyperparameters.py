"""Reports of trouble with hyperparameters in other tools, by their case number: ours gives what was wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.job.checks import check
from core.job.load import parse_job
from core.job.machine import Machine
from data.errors import FactoryError

CPU = Machine("Linux", "3.11", cores=2, memory=2**36, memory_free=2**35)


def findings(tmp_path: Path, text: str):
    rows = tmp_path / "rows.jsonl"
    if not rows.exists():
        turns = (
            [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}."}]
            for n in range(40)
        )
        rows.write_text("".join(json.dumps({"messages": one}) + "\n" for one in turns))
    job = parse_job(text.replace("ROWS", str(rows)))
    return {one.code: one for one in check(job, CPU, tmp_path / "home")}


def test_060_save_eval_mismatch_best(tmp_path):
    text = "model: smollm2-135m\ndata: {path: ROWS, eval: 0.25}\nstage: sft\n"
    text += "train: {eval_steps: 4, save_steps: 5, keep_best: true, max_steps: 16}\n"
    finding = findings(tmp_path, text)["save_and_eval_apart"]
    assert finding.fix == {"train.save_steps": 4} and finding.level == "note"


def test_061_float_step_multiple(tmp_path):
    """Shares of a run are steps here: 0.1 and 0.02 of 100 steps are 10 and 2."""
    text = "model: smollm2-135m\ndata: {path: ROWS, eval: 0.25}\nstage: sft\n"
    text += "train: {eval_steps: 2, save_steps: 10, keep_best: true, max_steps: 100}\n"
    assert findings(tmp_path, text) == {}


def test_065_grpo_one_generation():
    with pytest.raises(FactoryError, match="at least 2"):
        parse_job("model: m\ndata: rows.jsonl\nstage: {name: grpo, num_generations: 1}\n")


def test_066_minibatch_divisibility(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}?"}) + "\n" for n in range(64)))
    text = "model: smollm2-135m\ndata: ROWS\nstage: {name: ppo, num_mini_batches: 3}\nrewards: [{name: length}]\n"
    text += "train: {batch_size: 8, gradient_accumulation: 1, max_steps: 4}\n"
    message = findings(tmp_path, text)["batch_not_divisible"].message
    assert " 8 " in message and " 3 " in message


def test_074_world_size_batch(tmp_path):
    text = "model: smollm2-135m\ndata: ROWS\nstage: sft\nhardware: {devices: 7}\n"
    text += "train: {global_batch_size: 256, max_steps: 4}\n"
    finding = findings(tmp_path, text)["global_batch_uneven"]
    assert finding.message == (
        "train.global_batch_size 256 is no multiple of 7 processes; the nearest are 252 and 259."
    )
    assert finding.level == "error" and finding.fix == {"train.global_batch_size": 259}


def test_096_kto_batch_one(tmp_path):
    rows = ({"prompt": f"{n}?", "completion": "Yes.", "label": n % 2 == 0} for n in range(32))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "model: smollm2-135m\ndata: ROWS\nstage: kto\ntrain: {batch_size: 1, gradient_accumulation: 4}\n"
    fix = findings(tmp_path, text)["kto_batch_of_one"].fix
    assert fix == {"train.batch_size": 2, "train.gradient_accumulation": 2}


def test_140_loss_zero_when_few_steps(tmp_path):
    text = "model: smollm2-135m\ndata: ROWS\nstage: sft\ntrain: {max_steps: 4, logging_steps: 10}\n"
    assert "first and the last" in findings(tmp_path, text)["logging_after_the_end"].message
