"""Exports as processes: followed, cancelled, killed, asked for by a job; and the card that ends every run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.runs import exports
from core.runs.after import make_exports
from core.runs.folder import Run
from core.runs.result import result_card
from core.runs.states import Book, new_record
from core.runs.storage import read_json
from data.errors import FactoryError
from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_sft import job
from tests.zygote import Zygote


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for one home that the tests share."""
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def run(zygote: Zygote, tiny: str, folder: Path) -> Run:
    """A finished LoRA run with held-out rows."""
    data = {"path": write_rows(folder / "rows.jsonl", chats(50)), "eval": 0.2}
    asked = job(tiny, data, train={"max_steps": 3, "save_steps": 2})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(folder / "home"))
    assert done["code"] == 0, done["events"][-1]
    return Run(Path(done["run"]))


def wait(export: exports.Export, ready: Any) -> exports.Export:
    """Wait until an export is as wished, at most two minutes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        now = exports.find_export(export.run, export.name)
        assert now is not None
        if ready(now):
            return now
        time.sleep(0.02)
    raise AssertionError(f"still {now.state} in phase {now.record.get('phase')}")


def test_the_word_export_makes_one_lists_it_and_says_what_was_verified(run: Run, capsys: Any) -> None:
    home = str(run.home)
    assert main(["--home", home, "export", run.id]) == 0
    assert f"factory export {run.id} --to merged" in capsys.readouterr().out
    assert main(["--home", home, "export", run.id, "--to", "merged", "--dtype", "bf16"]) == 0
    told = capsys.readouterr()
    assert "exports/merged-bf16" in told.out and "verified  " in told.out
    assert "loading it in a fresh process" in told.err
    assert main(["--home", home, "export", run.id, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"]) for one in listed] == [("merged-bf16", "done")]
    record = read_json(run.exports / "merged-bf16" / "COMPLETE.json")
    assert record["run"] == run.id and record["verified_by"]


def test_a_cancelled_export_leaves_nothing_and_says_so(run: Run) -> None:
    begun, child = exports.start(run, {"name": "merged"})
    wait(begun, lambda now: now.state == "running")
    ended = exports.cancel(begun)
    child.wait()
    assert (ended.state, ended.path, ended.error) == ("cancelled", None, None)
    assert child.returncode == 3 and not list(run.exports.glob(".tmp-*"))
    with pytest.raises(FactoryError, match="is not being made: it is cancelled"):
        exports.cancel(ended)


def test_a_killed_export_reads_as_failed_and_the_next_one_tidies_up(run: Run) -> None:
    begun, child = exports.start(run, {"name": "merged", "dtype": "fp16"})
    wait(begun, lambda now: "writing" in str(now.record.get("phase")) or now.over)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    ended = wait(begun, lambda now: now.over)
    if ended.state == "done":  # it was faster than the kill
        return
    assert ended.state == "failed" and ended.error == {"code": "export_killed", "message": exports.KILLED}
    assert exports.remove(ended) == 0
    exports._tidy(run)
    assert not list(run.exports.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--to", "mergd"], "export_unknown"),
        (["--to", "merged", "--quant", "q8_0"], "export_setting"),
        (["--to", "gguf", "--quant", "q9"], "not_a_choice"),
        (["--to", "gguf", "--quant", "q4_k_m"], "export_quant_missing"),
        (["--to", "hub", "--repo", "me/mine"], "hub_token_missing"),
        (["--to", "merged", "--checkpoint", "7"], "checkpoint_not_found"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence_before_any_process(
    run: Run, words: list[str], code: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "llama_cpp" else True)
    before = {path.name for path in run.exports.iterdir()} if run.exports.exists() else set()
    assert main(["--home", str(run.home), "export", run.id, *words, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    codes = [one["code"] for one in told["findings"]]
    assert len(codes) == 1 and (codes == [code] or code == "not_a_choice"), told
    assert {path.name for path in run.exports.iterdir()} == before if before else not run.exports.exists()


def test_a_run_without_a_model_says_what_it_has(run: Run, tmp_path: Path) -> None:
    import shutil

    other = Run(tmp_path / "home" / "runs" / run.id)
    shutil.copytree(run.path, other.path)
    shutil.rmtree(other.model)
    with pytest.raises(
        FactoryError, match="no finished model: take its newest checkpoint with --checkpoint 3"
    ):
        exports.start(other, {"name": "merged"})
    shutil.rmtree(other.checkpoints)
    with pytest.raises(FactoryError, match="no finished model: it made no checkpoint either"):
        exports.start(other, {"name": "merged"})


def test_the_exports_of_a_job_are_made_one_by_one_and_a_failed_one_is_told(run: Run) -> None:
    book = Book(run, new_record(run, {}, {}))
    specs = [{"name": "card"}, {"name": "merged", "checkpoint": 99}]
    told = make_exports(run, specs, book, stopped=lambda: False, pause=lambda: time.sleep(0.05))
    assert told is not None and told.startswith("trained, but export merged failed: Run ")
    assert [one["target"] for one in book.record["exports"]] == ["card"]
    assert len(book.record["exports_missing"]) == 1
    late = make_exports(run, [{"name": "card"}], book, stopped=lambda: True, pause=lambda: None)
    assert late == "trained, but export card was not begun, as the run was asked to stop"


def test_the_card_compares_base_and_tuned_on_the_same_held_out_rows(run: Run) -> None:
    card = result_card(run)
    assert card is not None
    assert card.measure == "eval_loss" and card.held_out and card.rows == 10
    assert card.base is not None and card.tuned is not None and card.tuned < card.base
    assert "same 10 held-out rows" in card.note
    assert [one.prompt for one in card.answers] == ["What is 1 and 1?"]
    assert card.answers[0].base is not None and card.answers[0].tuned is not None
    assert card.model_bytes > 10_000 and card.trainable and card.parameters and card.seconds
    assert card.next["export"] == f"factory export {run.id} --to gguf"


def test_full_training_compares_too_and_looking_changes_no_loss(
    zygote: Zygote, tiny: str, tmp_path: Path
) -> None:
    data = {"path": write_rows(tmp_path / "rows.jsonl", chats(50)), "eval": 0.2}
    asked = job(tiny, data, method="full", train={"max_steps": 3, "learning_rate": 1e-2})
    looked = zygote.call("tests.cpu.jobs:train", job=asked, home=str(tmp_path / "home"))
    card = result_card(Run(Path(looked["run"])))
    assert card is not None and card.base is not None and card.tuned is not None
    assert card.tuned < card.base
    blind = zygote.call("tests.cpu.exports:train_without_baseline", job=asked, home=str(tmp_path / "home"))
    assert blind["losses"] == looked["losses"]
    assert json.loads((Path(looked["run"]) / "baseline.json").read_text("utf-8"))["eval_loss"] == card.base


def test_without_held_out_rows_the_card_says_what_its_numbers_are(
    zygote: Zygote, tiny: str, tmp_path: Path
) -> None:
    asked = job(tiny, write_rows(tmp_path / "rows.jsonl", chats(50)), train={"max_steps": 2})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(tmp_path / "home"))
    card = result_card(Run(Path(done["run"])))
    assert card is not None and not card.held_out and card.rows is None
    assert [card.base, card.tuned] == [done["losses"]["1"], done["losses"]["2"]]
    assert card.note.startswith("No rows were held out (data.eval)")
