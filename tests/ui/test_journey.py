"""The first hour with Factory, from an empty home: train, reload, lose the server, see it finish, compare, delete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Board, Watcher, a_board, ready, shot, started
from tests.ui.test_live import AWAY, STEPS

JOB = """
name: first
model: {model}
data: {data}
stage: sft
method: lora
train: {{epochs: {epochs}, batch_size: 4, learning_rate: 1e-3, logging_steps: 1}}
evaluate: {{prompts: [Who are you?], max_new_tokens: 8}}
"""
EPOCHS, PER_EPOCH = 14, 5  # 70 rows in batches of 4, 4 of them a step


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with a_board(tmp_path / "home") as one:
        yield one


def until(page: Page, wanted: str, seconds: float) -> None:
    expect(page.locator(f'.head [data-testid="state"][data-state="{wanted}"]')).to_be_visible(
        timeout=seconds * 1000
    )


@pytest.mark.timeout(1200)
def test_a_first_run_survives_everything_and_a_second_is_compared_with_it(
    board: Board, page: Page, watcher: Watcher, zygote
):
    watcher.allow(AWAY)
    model = board.home / "models" / "tiny"
    zygote.call("tests.tiny:save_tiny_at", folder=str(model))
    ready(page, board.url())
    expect(page.get_by_test_id("welcome")).to_contain_text("Train your first model")

    text = JOB.format(model=model, data="data/samples/persona.jsonl", epochs=EPOCHS)
    ready(page, board.url(f"/new?yaml={quote(text)}"))
    page.get_by_test_id("start").click()
    page.wait_for_url("**/run?id=*")
    started(page)
    page.wait_for_function(f"({STEPS} ?? []).length > 3", timeout=120_000)
    page.reload()
    page.wait_for_function(f"({STEPS} ?? []).length > 6", timeout=60_000)
    board.end(9)
    expect(page.get_by_test_id("connection")).to_have_text("Reconnecting…")
    board.start()
    until(page, "succeeded", 600)
    total = EPOCHS * PER_EPOCH
    page.wait_for_function(f"({STEPS}).at(-1) === {total}")
    assert page.evaluate(STEPS) == list(range(1, total + 1))
    expect(page.get_by_test_id("done-card")).to_be_visible()
    expect(page.get_by_test_id("sample")).to_contain_text("Who are you?")
    expect(page.get_by_test_id("checkpoints")).to_contain_text(f"{total}")
    shot(page, "journey-done")
    first = page.url.split("id=")[1]

    page.get_by_test_id("retry").click()
    page.wait_for_url("**/new*")
    started(page)
    page.locator("#f-train-epochs input").fill("2000")  # it is still at work when Stop is pressed
    expect(page.get_by_test_id("yaml")).to_have_value(re.compile("epochs: 2000"))
    page.get_by_test_id("start").click()
    page.wait_for_url("**/run?id=*")
    started(page)
    second = page.url.split("id=")[1]
    assert second != first
    page.wait_for_function(f"({STEPS} ?? []).length > 3", timeout=120_000)
    page.get_by_test_id("stop").click()
    page.get_by_role("menuitem", name="Save and stop").click()
    until(page, "stopped", 300)
    expect(page.get_by_test_id("resume")).to_be_visible()

    ready(page, board.url())
    for run in (first, second):
        page.locator(f'[data-run="{run}"]').get_by_role("checkbox").check()
    page.get_by_test_id("compare").click()
    page.wait_for_url("**/compare?ids=*")
    expect(page.get_by_test_id("compare-run")).to_have_count(2)
    expect(page.locator("[data-chart=loss] .legend b")).to_have_count(2)
    expect(page.get_by_test_id("final")).to_contain_text("Loss")

    ready(page, board.url(f"/run?id={first}"))
    page.get_by_test_id("more").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_test_id("ask")).to_contain_text("MiB")
    page.get_by_test_id("ask-yes").click()
    page.wait_for_url(board.url())
    expect(page.locator("tr[data-run]")).to_have_count(1)
    assert not (board.home / "runs" / first).exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_one_click_trains_the_quickstart_on_the_real_small_model(board: Board, page: Page, watcher: Watcher):
    watcher.allow(AWAY)
    ready(page, board.url())
    page.get_by_test_id("first-run").dblclick()
    page.wait_for_url("**/run?id=*", timeout=60_000)
    page.wait_for_function(f"({STEPS} ?? []).length > 2", timeout=400_000)
    page.reload()
    page.wait_for_function(f"({STEPS} ?? []).length > 4", timeout=200_000)
    board.end(9)
    board.start()
    until(page, "succeeded", 1000)
    after = page.get_by_test_id("sample").first.locator(".answer").nth(1)
    expect(after).to_contain_text("Pharos")
    shot(page, "quickstart-done")
    assert len(list((board.home / "runs").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_first_card_tells_how_long_it_will_take_on_this_machine(board: Board, page: Page):
    ready(page, board.url())
    told = page.get_by_test_id("welcome").get_by_role("heading")
    expect(told).to_have_text(re.compile(r"about \d+ min"), timeout=600_000)
    shot(page, "welcome")
