"""The command line's words about data: inspect, rows, preview, formats."""

from __future__ import annotations

import json

import pytest

from core.cli import main
from tests.unit.data.helpers import jsonl
from tests.unit.data.shapes import assistant, chat, user

ROWS = [chat(user(f"Say {n}"), assistant(f"{n}!")) for n in range(5)]


def run(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def test_inspect_prints_the_report(tmp_path, capsys):
    file = jsonl(tmp_path / "a.jsonl", [*ROWS, ROWS[0]])
    code, said = run(capsys, "data", "inspect", file, "--json")
    report = json.loads(said.out)
    assert code == 0 and report["format"] == "messages" and report["read"] == report["kept"] == 6
    wanted = {
        "format",
        "sure",
        "columns",
        "read",
        "kept",
        "reasons",
        "examples",
        "lengths",
        "stages",
        "findings",
    }
    assert wanted <= report.keys() and report["stages"]["sft"] is True and "needs" in report["stages"]["dpo"]
    code, said = run(capsys, "data", "inspect", file)
    assert "rows kept    6 of 6" in said.out and "1 row repeats an earlier row" in said.out


def test_inspect_for_a_stage_that_does_not_fit_is_refused(tmp_path, capsys):
    code, said = run(capsys, "data", "inspect", jsonl(tmp_path / "a.jsonl", ROWS), "--stage", "dpo")
    assert code == 2 and "Stage dpo needs" in said.err
    code, said = run(capsys, "data", "inspect", tmp_path / "a.jsonl", "--stage", "dop")
    assert code == 2 and "There is no stage dop" in said.err


def test_rows_are_one_json_object_a_line(tmp_path, capsys):
    code, said = run(capsys, "data", "rows", jsonl(tmp_path / "a.jsonl", ROWS), "-n", "2", "--json")
    assert code == 0 and [json.loads(line) for line in said.out.splitlines()] == ROWS[:2]
    code, said = run(capsys, "data", "rows", tmp_path / "a.jsonl", "-n", "1")
    assert "user: Say 0" in said.out and "assistant: 0!" in said.out


def test_settings_are_those_of_a_job(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("q1,a1\nHi,Ho\n")
    words = (
        "data",
        "rows",
        tmp_path / "a.csv",
        "-o",
        "columns.prompt=q1",
        "-o",
        "columns.completion=a1",
        "--json",
    )
    code, said = run(capsys, *words)
    assert code == 0 and json.loads(said.out) == {"prompt": "Hi", "completion": "Ho"}
    code, said = run(capsys, "data", "rows", tmp_path / "a.csv", "-o", "colums.prompt=q1")
    assert code == 2 and "colums" in said.err
    code, said = run(capsys, "data", "rows", tmp_path / "a.csv", "-o", "columns.prompt=nope")
    assert code == 2 and "names the column nope" in said.err


def test_formats_are_listed(capsys):
    code, said = run(capsys, "data", "formats", "--json")
    assert code == 0 and {"alpaca", "messages", "trees"} <= {one["name"] for one in json.loads(said.out)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tests.tiny import save_tiny

    return save_tiny(tmp_path_factory.mktemp("model"))


def test_preview_and_inspect_with_a_models_tokenizer(tmp_path, capsys, model):
    file = jsonl(tmp_path / "a.jsonl", ROWS)
    code, said = run(capsys, "--home", tmp_path, "data", "preview", file, "--model", model, "-n", "1")
    assert code == 0 and "⟦0!<|im_end|>⟧" in said.out, said.err
    code, said = run(
        capsys, "--home", tmp_path, "data", "inspect", file, "--model", model, "--stage", "sft", "--json"
    )
    report = json.loads(said.out)
    assert report["lengths"]["unit"] == "tokens" and report["lengths"]["count"] == 5
