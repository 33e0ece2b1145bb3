"""A run followed live: no point is lost or doubled by a reload, a dead server, many tabs, a browser without streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from core.runs.folder import Run
from tests.ui.conftest import Board, Watcher, a_board, ready, started, until
from tests.ui.made import alive, append, make_run

STEPS = "document.querySelector('[data-chart=loss]')?.chart.curves()[0].x"
AWAY = r"ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY_RESPONSE|ERR_NETWORK"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("live") / "home") as one:
        yield one


@pytest.fixture
def run(board: Board) -> Iterator[Run]:
    """A run that lives as long as its test and is at step 10 of 1,000."""
    made = make_run(board.home, "live", state="running", steps=10, total=1000, age=20, log=["the first line"])
    with alive(made):
        yield made


def go_on(run: Run, first: int, last: int) -> None:
    """Steps as the training process writes them, and a line of log for each."""
    append(
        run,
        *(
            {"event": "metric", "step": step, "values": {"loss": 3.0 / step}}
            for step in range(first, last + 1)
        ),
    )
    with run.log.open("a") as log:
        log.write("".join(f"step {step}\n" for step in range(first, last + 1)))


def sees(page: Page, last: int) -> None:
    """Wait until a page has every step up to `last`, each once."""
    page.wait_for_function(f"({STEPS} ?? []).at(-1) === {last}")
    assert page.evaluate(STEPS) == list(range(1, last + 1))
    expect(page.locator('[data-fact="step"] b')).to_have_text(f"{last:,}")


def lines(page: Page) -> list[str]:
    return page.locator('[data-testid="log"] .line').all_inner_texts()


def test_new_steps_and_log_lines_appear_by_themselves(board: Board, run: Run, page: Page):
    ready(page, board.url(f"/run?id={run.id}"))
    sees(page, 10)
    for last in (11, 15, 40):
        go_on(run, 11 if last == 11 else (12 if last == 15 else 16), last)
        sees(page, last)
    expect(page.locator('[data-testid="log"] .line').last).to_have_text("step 40")
    shown = lines(page)
    assert len(shown) == len(set(shown))


def test_a_reload_in_the_middle_loses_and_doubles_nothing(board: Board, run: Run, page: Page):
    ready(page, board.url(f"/run?id={run.id}"))
    sees(page, 10)
    go_on(run, 11, 20)
    page.reload()
    go_on(run, 21, 30)
    started(page)
    go_on(run, 31, 35)
    sees(page, 35)


def test_a_killed_server_is_waited_for_quietly(board: Board, run: Run, page: Page, watcher: Watcher):
    watcher.allow(AWAY)
    ready(page, board.url(f"/run?id={run.id}"))
    sees(page, 10)
    board.end(9)
    expect(page.get_by_test_id("connection")).to_have_text("Reconnecting…")
    go_on(run, 11, 30)
    board.start()
    sees(page, 30)
    expect(page.get_by_test_id("connection")).to_have_text("")
    go_on(run, 31, 32)
    sees(page, 32)
    expect(page.locator('[data-testid="log"] .line').last).to_have_text("step 32")


def test_a_resumed_run_replaces_the_steps_it_does_again(board: Board, run: Run, page: Page):
    ready(page, board.url(f"/run?id={run.id}"))
    go_on(run, 11, 30)
    sees(page, 30)
    append(run, {"event": "state", "state": "starting", "attempt": 2})
    go_on(run, 21, 25)
    page.wait_for_function(f"({STEPS}).at(-1) === 25")
    assert page.evaluate(STEPS) == list(range(1, 26))


def test_twelve_tabs_share_one_stream_and_survive_their_leader(
    board: Board, run: Run, context: BrowserContext, watcher: Watcher
):
    pages = [watcher.watch(context.new_page()) for _ in range(12)]
    for page in pages:
        page.goto(board.url(f"/run?id={run.id}"), wait_until="commit")
    for page in pages:
        started(page)
    go_on(run, 11, 20)
    for page in pages:
        sees(page, 20)
    leaders = [
        page.evaluate("import('/ui/js/live.js').then(({live}) => Boolean(live.leading))") for page in pages
    ]
    assert leaders.count(True) == 1
    sources = "import('/ui/js/live.js').then(({live}) => Boolean(live.streams.runs?.source))"
    assert [page.evaluate(sources) for page in pages] == leaders
    pages.pop(leaders.index(True)).close()
    go_on(run, 21, 30)
    for page in pages:
        sees(page, 30)


def test_a_hidden_tab_follows_nothing_and_catches_up_when_seen(
    board: Board, run: Run, page: Page, context: BrowserContext, watcher: Watcher
):
    page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.away ?? false})")
    ready(page, board.url(f"/run?id={run.id}"))
    sees(page, 10)
    hide = "(away) => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    live = "import('/ui/js/live.js').then(({live}) => [live.status, live.streams.runs?.source ?? null])"
    assert page.evaluate(live) == ["paused", None]
    other = ready(watcher.watch(context.new_page()), board.url(f"/run?id={run.id}"))
    go_on(run, 11, 30)
    sees(other, 30)  # and tells all tabs of this browser
    assert page.evaluate(STEPS) == list(range(1, 11))
    page.evaluate(hide, False)
    sees(page, 30)


WITHOUT = {
    "locks": "Object.defineProperty(Navigator.prototype, 'locks', {get: () => undefined})",
    "streams": "delete window.EventSource",
}


@pytest.mark.parametrize("what", WITHOUT)
def test_a_browser_without_it_polls(what: str, board: Board, run: Run, page: Page):
    page.add_init_script(WITHOUT[what])
    ready(page, board.url(f"/run?id={run.id}"))
    go_on(run, 11, 25)
    sees(page, 25)
    expect(page.locator('[data-testid="log"] .line').last).to_have_text("step 25")
    page.wait_for_function("import('/ui/js/live.js').then(({live}) => live.status === 'polling')")


def test_two_browsers_see_a_change_of_the_other(board: Board, run: Run, tab: Callable[..., Page]):
    one, two = tab(board, f"/run?id={run.id}"), tab(board)
    one.get_by_test_id("rename").click()
    one.get_by_test_id("rename-field").fill("a better name")
    one.keyboard.press("Enter")
    expect(one.get_by_test_id("run-title")).to_have_text("a better name")
    expect(two.locator(f'[data-run="{run.id}"] .name a')).to_have_text("a better name")


def test_a_flood_of_lines_keeps_the_newest_and_can_be_paged_back(board: Board, run: Run, page: Page):
    ready(page, board.url(f"/run?id={run.id}"))
    expect(page.locator('[data-testid="log"] .line').last).to_contain_text("the first line")
    for part in range(5):
        with run.log.open("a") as log:
            log.write("".join(f"flood {part * 20_000 + line}\n" for line in range(20_000)))
        expect(page.locator('[data-testid="log"] .line').last).to_have_text(f"flood {part * 20_000 + 19_999}")
    box = page.get_by_test_id("log")
    box.focus()

    def first_lines() -> list[str]:
        box.press("Home")  # each brings a piece from before, until there is none
        return lines(page)[:20]

    until(page, first_lines, ["the first line", *(f"flood {number}" for number in range(19))])


def test_a_deleted_run_says_so(board: Board, page: Page, tmp_path: Path, watcher: Watcher):
    watcher.allow("404")
    made = make_run(board.home, "short-lived")
    ready(page, board.url(f"/run?id={made.id}"))
    made.path.rename(tmp_path / "gone")
    expect(page.locator(".card.empty h2")).to_have_text("This run is gone")
