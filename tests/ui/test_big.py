"""A log of 100,000 lines and ten runs of 10,000 points: smooth, since the page holds few elements and few points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from core.runs.folder import Run
from tests.ui.conftest import Board, a_board, ready
from tests.ui.made import make_run

LINES = 100_000
NODES = "document.querySelectorAll('*').length"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("big") / "home") as one:
        yield one


@pytest.fixture(scope="module")
def ten(board: Board) -> list[Run]:
    log = [f"line {number} of the log" for number in range(LINES)]
    return [
        make_run(board.home, f"big-{number}", steps=10_000, seed=number, log=log if number == 0 else [])
        for number in range(10)
    ]


def lines(page: Page) -> list[str]:
    return page.locator('[data-testid="log"] .line').all_inner_texts()


def test_a_long_log_is_a_window_that_pages_back_searches_and_stops_following(
    board: Board, ten: list[Run], page: Page
):
    ready(page, board.url(f"/run?id={ten[0].id}"))
    expect(page.locator('[data-testid="log"] .line').last).to_have_text(f"line {LINES - 1} of the log")
    expect(page.get_by_test_id("log-status")).to_contain_text("last 2,000 lines")
    page.keyboard.press("/")
    page.keyboard.type("line 12 of")
    expect(page.locator(".hits")).to_contain_text("not found")
    page.get_by_role("button", name="Search all of it").click()
    expect(page.locator(".hits")).to_contain_text("1 of 1", timeout=30_000)
    expect(page.locator('[data-testid="log"] .line.current')).to_have_text("line 12 of the log")
    expect(page.get_by_test_id("log-status")).to_contain_text("100,000 lines")
    assert page.evaluate(NODES) < 1500
    page.get_by_test_id("log").focus()
    page.keyboard.press("End")
    expect(page.locator('[data-testid="log"] .line').last).to_have_text(f"line {LINES - 1} of the log")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    assert page.evaluate(NODES) < 1500


def test_ten_runs_of_ten_thousand_points_are_drawn_and_smoothed(board: Board, ten: list[Run], page: Page):
    ready(page, board.url(f"/compare?ids={','.join(run.id for run in ten)}"))
    expect(page.locator("[data-chart=loss] .legend b").nth(9)).not_to_have_text("")
    size = "document.querySelector('[data-chart=loss]').chart.curves().map((one) => one.x.length)"
    assert all(1500 < count <= 2100 for count in page.evaluate(size))
    assert page.evaluate(NODES) < 2500
    slider = page.get_by_test_id("smoothing")
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".smoothing output")).to_have_text("0.70")
    box = page.locator("[data-chart=loss] .plot").bounding_box()
    assert box is not None
    for share in range(20, 80, 3):
        page.mouse.move(box["x"] + box["width"] * share / 100, box["y"] + 90)
    assert all(1500 < count <= 2100 for count in page.evaluate(size))
    assert page.evaluate(NODES) < 2500


def test_a_drag_zooms_all_curves_and_a_double_click_shows_all_again(board: Board, ten: list[Run], page: Page):
    ready(page, board.url(f"/run?id={ten[1].id}"))
    plot = page.locator("[data-chart=loss] .u-over")
    plot.wait_for()
    width = plot.evaluate("one => one.clientWidth")
    plot.hover(position={"x": width * 0.25, "y": 60})  # finds its place by itself when the page still moves
    page.mouse.down()
    for share in (0.3, 0.4, 0.5):
        plot.hover(position={"x": width * share, "y": 60})
    page.mouse.up()
    scale = "(name) => document.querySelector(`[data-chart=${name}]`).chart.plot?.scales.x ?? {}"
    zoomed = "({min, max}) => 2000 < min && min < 3000 && 4500 < max && max < 5500"
    page.wait_for_function(f"({zoomed})(({scale})('loss'))")
    for name in ("token_accuracy", "entropy"):  # and one that nobody has seen until now
        page.locator(f"[data-chart={name}]").scroll_into_view_if_needed()
        page.wait_for_function(f"({zoomed})(({scale})('{name}'))")
    plot.scroll_into_view_if_needed()
    expect(page.locator("[data-chart=loss]").get_by_role("button", name="Reset zoom")).to_be_visible()
    plot.dblclick()
    page.wait_for_function(f"({scale})('loss').max === 10000 && ({scale})('token_accuracy').max === 10000")
    page.locator("[data-chart=loss]").get_by_role("button", name="log").click()
    page.wait_for_function("document.querySelector('[data-chart=loss]').chart.plot?.scales.y.distr === 3")
