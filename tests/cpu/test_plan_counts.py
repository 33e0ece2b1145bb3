"""`factory plan` counts what training will see, with the model's own tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from core.cli import main
from tests.cpu.conftest import chats, write_rows


def test_plan_counts_rows_tokens_and_steps(tiny: str, tmp_path: Path, capsys):
    job = tmp_path / "job.yaml"
    job.write_text(
        f"model: {tiny}\nstage: sft\ndata: {write_rows(tmp_path / 'rows.jsonl', chats(20))}\n"
        "train: {epochs: 2, batch_size: 4, gradient_accumulation: 1}\n"
    )
    assert main(["--home", str(tmp_path / "home"), "plan", str(job), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    counts = plan["counts"]
    assert (counts["read"], counts["dropped"], counts["rows"], plan["steps"]) == (20, 0, 20, 10)
    assert 0 < counts["trained_tokens"] < counts["tokens"]


def test_plan_of_data_that_teaches_nothing_is_refused_in_words(tiny: str, tmp_path: Path, capsys):
    rows = write_rows(
        tmp_path / "rows.jsonl", [{"messages": [{"role": "user", "content": "Only a question"}]}] * 5
    )
    job = tmp_path / "job.yaml"
    job.write_text(f"model: {tiny}\nstage: sft\ndata: {rows}\n")
    assert main(["--home", str(tmp_path / "home"), "plan", str(job)]) == 2
    said = capsys.readouterr().err
    assert "error" in said and "Traceback" not in said
