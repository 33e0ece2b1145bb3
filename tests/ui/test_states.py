"""What the page of a run offers in each state, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from core.runs.folder import Run
from tests.ui.conftest import Board, Watcher, a_board, calm, ready, shot, started, until, violations
from tests.ui.made import alive, append, make_run


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("states") / "home") as one:
        yield one


@pytest.fixture
def show(board: Board, page: Page) -> Callable[[Run], Page]:
    return lambda run: ready(page, board.url(f"/run?id={run.id}"))


def buttons(page: Page) -> list[str]:
    return [text for text in page.locator(".head .btns .btn").all_inner_texts() if text.strip()]


def test_a_waiting_run_can_be_cancelled_or_moved(board: Board, show: Callable[[Run], Page]):
    run = make_run(board.home, "waits", state="queued", steps=0, total=50, log=[])
    with alive(run):
        page = show(run)
        until(page, lambda: buttons(page), ["Move to the front", "Cancel"])
        expect(page.get_by_test_id("queue-card")).to_contain_text("It starts by itself")
        expect(page.locator(".log-card .empty")).to_be_visible()


def test_a_starting_run_says_what_it_is_doing(board: Board, show: Callable[[Run], Page]):
    run = make_run(board.home, "begins", state="running", steps=0, total=50, samples=False, log=[])
    run.events.write_text("")
    with alive(run):
        page = show(run)
        append(run, {"event": "phase", "name": "loading", "text": "Loading smollm2-135m"})
        expect(page.get_by_test_id("starting")).to_contain_text("Loading smollm2-135m")
        append(run, {"event": "phase", "name": "preparing", "text": "Preparing the data"})
        expect(page.locator(".phases .now")).to_have_text("Prepare the data")
        append(
            run,
            {
                "event": "start",
                "total_steps": 50,
                "rows": 9,
                "trainable": 1,
                "parameters": 2,
                "device": "cpu",
            },
        )
        expect(page.locator(".phases .now")).to_have_text("Train")
        append(run, {"event": "metric", "step": 1, "values": {"loss": 2.5}})
        expect(page.get_by_test_id("starting")).to_have_count(0)
        expect(page.locator('[data-tile="loss"] .v')).to_have_text("2.5")


def test_stopping_says_what_it_does_before_it_is_done(board: Board, show: Callable[[Run], Page]):
    run = make_run(board.home, "stops", state="running", steps=5, total=50)
    with alive(run):
        page = show(run)
        page.get_by_test_id("stop").click()
        expect(page.get_by_role("menuitem", name="Save and stop")).to_contain_text("can go on later")
        expect(page.get_by_role("menuitem", name="Stop now")).to_contain_text("is lost")
        page.keyboard.press("Escape")
        expect(page.get_by_role("menu")).to_have_count(0)
        assert not run.stop_file.exists()
        page.get_by_test_id("stop").click()
        page.get_by_role("menuitem", name="Save and stop").click()
        expect(page.locator(".toast")).to_contain_text("it saves first")
        assert run.stop_file.read_text() == ""


def test_a_failed_run_says_why_and_what_to_try(board: Board, show: Callable[[Run], Page]):
    facts = {"reason": "Memory ran out.", "fault": "out_of_memory"}
    run = make_run(board.home, "fails", state="failed", steps=5, total=50, facts=facts)
    page = show(run)
    card = page.get_by_test_id("error-card")
    for words in (
        "Memory ran out.",
        "did not fit the memory",
        "train.batch_size",
        "Halve the batch",
        "train.batch_size: 4",
    ):
        expect(card).to_contain_text(words)
    expect(card.get_by_test_id("retry-change")).to_be_enabled()
    until(page, lambda: buttons(page), ["Retry with a change", "Resume"])
    expect(page.get_by_test_id("retry")).to_have_attribute("href", f"/new?from={run.id}")
    page.get_by_test_id("retry").click()
    page.wait_for_url("**/new")
    expect(page.get_by_test_id("yaml")).to_have_value(re.compile("stage: sft"))
    expect(page.locator("#f-stage input:checked")).to_have_value("sft")


def test_a_finished_run_shows_before_and_after(board: Board, show: Callable[[Run], Page]):
    page = show(make_run(board.home, "done"))
    expect(page.get_by_test_id("done-card")).to_contain_text("The model lies in")
    first = page.get_by_test_id("sample").first
    expect(first.locator(".answer").nth(0)).to_contain_text("I am a helpful assistant.")
    expect(first.locator(".answer").nth(1)).to_contain_text("I am Pharos")
    page.get_by_test_id("sample-step").fill("0")
    expect(first.locator(".answer").nth(1)).to_contain_text("At step 20")
    expect(page.get_by_test_id("settings")).to_contain_text("train.learning_rate")
    expect(page.locator(".head .btns .btn", has_text="Train again with a change")).to_be_visible()


def test_sampled_answers_show_their_rewards_best_first(board: Board, show: Callable[[Run], Page]):
    run = make_run(
        board.home,
        "sampled",
        state="running",
        steps=3,
        total=50,
        samples=False,
        job={"stage": "grpo", "rewards": ["accuracy"]},
    )
    with alive(run):
        page = show(run)
        answers = (("four", 0.0), ("4", 1.0), ("5", 0.25))
        append(
            run,
            *(
                {
                    "event": "sample",
                    "step": 4,
                    "kind": "during",
                    "prompt": "2+2",
                    "answer": text,
                    "scores": {"accuracy": score},
                }
                for text, score in answers
            ),
        )
        expect(page.locator(".answer .says")).to_have_text(["4", "5", "four"])
        expect(page.locator(".scores").first).to_have_text("accuracy 1")


def test_a_warning_says_what_to_try(board: Board, show: Callable[[Run], Page]):
    run = make_run(board.home, "warns", state="running", steps=5, total=50)
    with alive(run):
        page = show(run)
        append(run, {"event": "warning", "code": "answers_cut", "message": "Most answers are cut."})
        expect(page.get_by_test_id("warning")).to_have_text(
            "Most answers are cut. Raise stage.max_completion_length."
        )


def test_a_number_outside_its_healthy_range_is_pointed_out(board: Board, show: Callable[[Run], Page]):
    run = make_run(
        board.home,
        "unwell",
        steps=30,
        values=lambda step: {"loss": 1.0, "grad_norm": 0.5 if step < 20 else 150.0},
    )
    page = show(run)
    expect(page.locator("[data-chart=loss] .chart-note")).to_have_text("Healthy: 0.5 to 2")
    expect(page.locator("[data-chart=grad_norm] .chart-note.out")).to_have_text(
        "Outside the healthy range: 0.1 to 10"
    )


def test_a_run_that_is_not_there_says_so(board: Board, page: Page, watcher):
    watcher.allow("404")
    ready(page, board.url("/run?id=nobody"))
    expect(page.locator(".card.empty")).to_contain_text("This run is not here")
    ready(page, board.url("/run"))
    expect(page.locator(".card.empty")).to_contain_text("No run is named")


def test_an_export_asks_for_its_settings_and_what_is_refused_stands_under_its_field(
    board: Board, show: Callable[[Run], Page], watcher: Watcher
):
    watcher.allow("status of 422")
    page = show(make_run(board.home, "becomes"))
    page.get_by_test_id("export").click()
    page.get_by_role("menuitem", name="Whole model").click()
    form = page.get_by_test_id("export-form")
    expect(form.get_by_label("Dtype")).to_have_value("auto")
    form.get_by_test_id("export-shard_size").fill("0")
    form.get_by_test_id("export-checkpoint").fill("last")
    form.get_by_test_id("export-go").click()
    expect(form.locator("[data-name=checkpoint] .told")).to_contain_text("checkpoint")
    form.get_by_test_id("export-checkpoint").fill("")
    form.get_by_test_id("export-go").click()
    expect(form.locator("[data-name=shard_size] .told")).to_contain_text("Must be")
    expect(form.locator("[data-name=checkpoint] .told")).to_have_count(0)
    shot(calm(page), "run_export_form")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)


WHY = {"code": "killed_for_memory", "params": {"peak": "23.1 GiB", "limit": "24 GiB"}}
KILLED = {"reason": "killed by signal 9, most likely out of memory", "why": WHY, "fault": "out_of_memory"}
OLD = {"reason": "Memory ran out.", "fault": "out_of_memory"}
"""As runs have it that were made before reasons had codes."""


@pytest.mark.parametrize(
    ("facts", "told"), [(KILLED, "多半是内存用完了：最多用了 23.1 GiB，共 24 GiB"), (OLD, "内存用完了")]
)
def test_a_chinese_page_tells_in_chinese_why_and_on_what(
    board: Board, tab: Callable[..., Page], facts: dict[str, object], told: str
):
    run = make_run(board.home, "zh-run", state="failed", steps=5, total=50, facts=facts)
    page = tab(board, f"/run?id={run.id}", locale="zh-CN")
    expect(page.get_by_test_id("error-card").locator(".what")).to_contain_text(told)
    expect(page.get_by_test_id("machine")).to_contain_text("核")
    english = re.compile("[A-Za-z]{4,}")
    expect(page.get_by_test_id("error-card").locator(".what")).not_to_contain_text(
        re.compile("signal|Memory")
    )
    expect(page.get_by_test_id("machine")).not_to_contain_text(re.compile("core|no GPU"))
    if facts is KILLED:
        expect(page.get_by_test_id("events").locator("li", has_text=told)).not_to_contain_text(english)
    page.goto(board.url(), wait_until="commit")
    started(page)
    cell = page.locator(f'[data-run="{run.id}"] .time')
    expect(cell).to_have_attribute("title", re.compile(told))
