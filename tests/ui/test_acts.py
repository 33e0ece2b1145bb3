"""What is pressed on the page of a run happens to it: real supervisors and a real queue, stand-ins for training."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from core.runs import control
from core.runs.folder import Run, list_runs
from core.runs.listing import rows
from core.runs.states import read_status
from tests.faults.conftest import over, start
from tests.faults.conftest import until as reaches
from tests.ui.conftest import Board, a_board, ready
from tests.ui.made import alive, append, make_run


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("acts") / "home") as one:
        yield one


@pytest.fixture
def begin(board: Board, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Starts a run in the queue of the board's machine; whatever of it still goes on afterwards is ended."""
    monkeypatch.setenv("FACTORY_SLOTS", str(board.home.parent / f"{board.home.name}-slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield lambda *behaviour: start(board.home, *behaviour)
    for run in list_runs(board.home):
        if read_status(run).state in ("queued", "starting", "running", "stopping"):
            control.stop(run, now=True)
            over(run)


def waits(board: Board, runs: list[Run]) -> None:
    """Wait until these runs wait in this order."""
    deadline = time.monotonic() + 120
    while [
        row.status.run.id for row in sorted(rows(board.home), key=lambda row: row.place or 0) if row.place
    ] != [run.id for run in runs]:
        assert time.monotonic() < deadline, [(row.status.run.id, row.place) for row in rows(board.home)]
        time.sleep(0.05)


def test_a_run_is_stopped_at_once_and_resumed(board: Board, page: Page, begin: Callable[..., Run]):
    run = begin("train", 600)
    reaches(run, "running")
    ready(page, board.url(f"/run?id={run.id}"))
    for attempt in (1, 2):
        page.get_by_test_id("stop").click()
        page.get_by_role("menuitem", name="Stop now").click()
        expect(page.get_by_test_id("resume")).to_be_visible()
        expect(page.get_by_test_id("stop")).to_have_count(0)
        assert (over(run).state, read_status(run).attempt) == ("stopped", attempt)
        page.get_by_test_id("resume").click()
        expect(page.get_by_test_id("stop")).to_be_visible()
        expect(page.get_by_test_id("resume")).to_have_count(0)
    page.get_by_test_id("stop").click()
    page.get_by_role("menuitem", name="Save and stop").click()
    expect(page.get_by_test_id("resume")).to_be_visible()
    status = over(run)
    assert (status.state, status.attempt, status.record["forced"]) == ("stopped", 3, False)
    assert str(status.record["checkpoint"]).startswith("checkpoints/checkpoint-")


def test_a_waiting_run_is_moved_to_the_front_and_another_is_taken_out(
    board: Board, page: Page, begin: Callable[..., Run]
):
    first = begin("train", 600)
    reaches(first, "running")
    second, third = begin("train", 600), begin("train", 600)
    waits(board, [second, third])
    ready(page, board.url(f"/run?id={third.id}"))
    expect(page.get_by_test_id("queue-card")).to_contain_text("Place 2 in the queue")
    page.get_by_test_id("front").click()
    expect(page.get_by_test_id("queue-card")).to_contain_text("Next in line")
    waits(board, [third, second])
    ready(page, board.url(f"/run?id={second.id}"))
    page.get_by_test_id("cancel").click()
    expect(page.get_by_test_id("resume")).to_be_visible()
    assert over(second).state == "stopped"


def test_a_failed_run_is_tried_again_with_the_change_that_its_card_names(
    board: Board, page: Page, begin: Callable[..., Run]
):
    busy = begin("train", 600)  # so that the new run waits instead of training here
    reaches(busy, "running")
    failed = make_run(
        board.home,
        "fails",
        state="failed",
        steps=5,
        total=50,
        facts={"reason": "Memory ran out.", "fault": "out_of_memory"},
    )
    ready(page, board.url(f"/run?id={failed.id}"))
    page.get_by_test_id("retry-change").click()
    page.wait_for_url(re.compile(rf"/run\?id=(?!{failed.id})"))
    expect(page.get_by_test_id("queue-card")).to_be_visible()
    expect(page.get_by_test_id("settings")).to_contain_text("train.batch_size")
    (made,) = [run for run in list_runs(board.home) if run.id in page.url]
    assert "batch_size: 4" in made.job_yaml.read_text("utf-8")
    page.get_by_test_id("cancel").click()
    expect(page.get_by_test_id("resume")).to_be_visible()


def test_the_log_and_the_job_are_brought_home_and_the_meters_go(board: Board, page: Page):
    run = make_run(board.home, "going", state="running", steps=5, total=50)
    with alive(run):
        append(run, {"event": "metric", "step": 6, "values": {"loss": 1.0}})
        ready(page, board.url(f"/run?id={run.id}"))
        expect(page.get_by_test_id("machine-card")).to_be_visible()
        expect(page.get_by_test_id("machine-card")).to_contain_text(re.compile(r"\d"))
        for item, file in (("job.yaml", run.job_yaml), ("log", run.log)):
            page.get_by_test_id("more").click()
            with page.expect_download() as download:
                page.get_by_role("menuitem", name=re.compile(item, re.IGNORECASE)).click()
            assert download.value.path().read_bytes() == file.read_bytes()


def test_two_runs_beside_each_other_show_what_differs_and_what_each_answers(board: Board, page: Page):
    one = make_run(board.home, "slow", age=900)
    two = make_run(board.home, "fast", age=800, job={"train": {"epochs": 3, "learning_rate": 5e-3}})
    ready(page, board.url(f"/compare?ids={one.id},{two.id}"))
    row = page.get_by_test_id("differing").locator("tr", has_text="train.learning_rate")
    expect(row.locator("td")).to_have_text(["0.001", "0.005"])
    first = page.get_by_test_id("compare-samples").locator("article").first
    expect(first.locator(".says")).to_have_count(2)
