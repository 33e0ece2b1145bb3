"""What factory fit and factory plan print of a forecast, and what they say to bad input: one sentence, soon."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from core.cli import main
from core.cli.show import duration

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A folder with nothing but a config.json."""
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_fit_prints_every_way_with_its_verdict_and_change(capsys, llama):
    assert main(["fit", str(llama), "--gpus", "8x80"]) == 0
    out = capsys.readouterr().out
    assert "8,030,261,248 weights. sft on 8 x 80.0 GiB:" in out
    lines = {
        tuple(line.split()[:2]): line for line in out.splitlines() if line[:4] in ("full", "lora", "qlor")
    }
    assert "too large" in lines["full", "ddp"] and lines["full", "deepspeed-3"].rstrip().endswith("fits")


def test_fit_as_json_has_the_parts(capsys, llama):
    assert main(["fit", str(llama), "--gpus", "24", "--stage", "dpo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["method"] for one in told["ways"]} == {"full", "lora", "qlora"}
    assert all(
        sum(one["memory"].values()) == pytest.approx(one["memory_total"], abs=10) for one in told["ways"]
    )


def test_an_unknown_architecture_is_measured_by_its_weights(capsys, tiny, tmp_path):
    import shutil

    folder = tmp_path / "odd"
    shutil.copytree(tiny, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "never_seen"}))
    assert main(["fit", str(folder), "--gpus", "8"]) == 0
    assert "guessed from the sizes of its weights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "is not readable JSON"),
        ("[]", "is not an object"),
        ('{"model_type": "x"}', "does not tell its size"),
    ],
)
def test_a_config_that_says_nothing_is_one_sentence(capsys, tmp_path, config, words):
    (tmp_path / "config.json").write_text(config)
    assert main(["fit", str(tmp_path), "--gpus", "8"]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["some-org/some-model", "--gpus", "8"], "the hub did not give its config.json"),
        (["smollm2-135m", "--gpus", "many"], "such as 8x80"),
        (["smollm2-135m", "--gpus", "8", "--stage", "sfd"], "did you mean sft?"),
        (["smollm2-135m", "--gpus", "8", "--batch", "65536", "--length", "1048576"], ""),
    ],
)
def test_bad_input_is_answered_in_a_sentence(capsys, words, said, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    code = main(["fit", *words])
    out, err = capsys.readouterr()
    assert (code == 2 if said else code == 0) and said in err
    assert "Traceback" not in err and (said or "too large" in out)


def test_the_plan_shows_parts_sum_time_and_disk(capsys, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "one two three"}) + "\n")
    job = tmp_path / "job.yaml"
    job.write_text(f"model: smollm2-135m\ndata: {tmp_path / 'rows.jsonl'}\nstage: pretrain\n")
    assert main(["plan", "--quick", str(job)]) == 0
    out = capsys.readouterr().out
    forecast = out[out.index("Forecast") :]
    assert all(
        word in forecast for word in ("weights", "activations", "framework", "memory", "disk", "on the CPU")
    )
    assert "unknown until the rows are counted" in forecast


def test_the_plan_says_when_nothing_of_the_model_is_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):  # it may be downloaded, but not for a plan
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "one two three"}) + "\n")
    job = tmp_path / "job.yaml"
    job.write_text(f"model: some-org/model\ndata: {tmp_path / 'rows.jsonl'}\nstage: pretrain\n")
    assert main(["plan", "--quick", str(job)]) == 0
    assert "unknown: nothing of the model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (40, "40 s"), (600, "10 min"), (9000, "2.5 h"), (200_000, "2.3 days")],
)
def test_durations_are_said_in_words(seconds, words):
    assert duration(seconds) == words


def test_fit_takes_little_time_in_a_fresh_process(llama):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "core.cli", "fit", str(llama), "--gpus", "8x80"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    )  # 0.35 on a quiet machine
