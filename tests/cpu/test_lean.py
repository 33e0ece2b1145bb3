"""A job that holds no weights in few bits is not made to import what does; one that may is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.job.load import parse_job
from core.job.machine import CHECKOUT
from core.training.lean import needs_bitsandbytes

JOB = "model: smollm2-135m\ndata: rows.jsonl\nstage: {}\n"


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        (JOB.format("sft"), False),
        (JOB.format("dpo") + "method: full\n", False),
        (JOB.format("sft") + "method: qlora\n", True),
        (JOB.format("sft") + "train: {optimizer: paged_adamw_8bit}\n", True),
        (JOB.format("sft") + "train: {optimizer: adamw_torch}\n", False),
        (JOB.format("grpo") + "rewards: [length]\n", False),
        (JOB.format("grpo") + "rewards: [{name: model, source: a-run}]\n", True),
        (JOB.format("ppo") + "rewards: [length]\n", True),
        (JOB.format("sft").replace("smollm2-135m", "some-org/not-here-yet"), True),
    ],
)
def test_only_jobs_with_weights_in_few_bits_need_them(tmp_path: Path, text: str, needed: bool) -> None:
    assert needs_bitsandbytes(parse_job(text), tmp_path) is needed


def test_a_base_that_comes_in_few_bits_needs_them(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    config = {"model_type": "llama", "quantization_config": {"quant_method": "bitsandbytes"}}
    (base / "config.json").write_text(json.dumps(config))
    assert needs_bitsandbytes(parse_job(JOB.format("sft").replace("smollm2-135m", str(base))), tmp_path)


def test_what_is_left_out_is_not_imported_with_the_libraries_and_can_be_later(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from core.engines import engine_module
from core.job.load import parse_job
engine_module("trl").begin(parse_job({JOB.format("sft")!r}), Path({str(tmp_path)!r}))
import core.training.session, core.training.adapter_layer
assert "peft" in sys.modules and "bitsandbytes" not in sys.modules
import importlib.util
assert importlib.util.find_spec("bitsandbytes")
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
