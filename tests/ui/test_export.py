"""From a trained run to a file on the user's disk, by clicks: export GGUF, watch it, download it, and it loads."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.runs.folder import Run
from core.runs.states import new_record
from core.runs.storage import read_json, write_json
from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_sft import job
from tests.ui.conftest import SHOTS, a_board
from tests.zygote import Zygote


@pytest.fixture
def run(zygote: Zygote, tiny: str, tmp_path: Path) -> Run:
    """A run that was really trained, with the last word its supervisor would have written."""
    data = {"path": write_rows(tmp_path / "rows.jsonl", chats(50)), "eval": 0.2}
    done = zygote.call(
        "tests.cpu.jobs:train",
        job=job(tiny, data, train={"max_steps": 3}),
        home=str(tmp_path / "home"),
    )
    made = Run(Path(done["run"]))
    record: dict[str, Any] = new_record(made, read_json(made.job_json), read_json(made.plan_json))
    write_json(made.state_json, {**record, "state": "succeeded", "attempt": 1, "ended": time.time()})
    return made


@pytest.mark.slow
def test_a_run_becomes_a_gguf_file_by_three_clicks_and_the_download_loads(
    run: Run, tab: Any, zygote: Zygote, tmp_path: Path
) -> None:
    with a_board(run.home) as board:
        page: Page = tab(board, f"/run?id={run.id}")
        page.get_by_test_id("export").click()
        page.get_by_role("menuitem", name=re.compile("^GGUF")).click()
        page.get_by_test_id("export-go").click()
        row = page.get_by_test_id("export-gguf-q8_0")
        expect(row).to_be_visible()
        expect(page.get_by_test_id("file-gguf-q8_0")).to_be_visible(timeout=120_000)
        expect(row.get_by_text("Verified in")).to_be_visible()
        SHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SHOTS / "run-export.png", full_page=True)
        with page.expect_download() as waiting:
            page.get_by_test_id("file-gguf-q8_0").click()
        file = tmp_path / "got" / "model.gguf"
        waiting.value.save_as(file)
        page.close()  # before its server goes, or the page complains
    assert file.read_bytes() == (run.exports / "gguf-q8_0" / "model.gguf").read_bytes()
    assert zygote.call("tests.cpu.exports:gguf_answers", folder=str(file.parent)) > 0
