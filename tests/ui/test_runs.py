"""The list of runs: found, sorted, chosen by keys, renamed, deleted; a thousand cost no more than a screenful."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from core.runs import checkpoints
from tests.ui.conftest import PHONE, Board, Watcher, a_board, no_wider, ready, started, violations
from tests.ui.made import alive, make_run

NODES = "document.querySelectorAll('*').length"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    home = tmp_path_factory.mktemp("runs") / "home"
    for number in range(1000):
        state = ("succeeded", "stopped", "failed", "succeeded")[number % 4]
        make_run(
            home,
            f"sweep-{number:03}",
            state=state,
            steps=3,
            age=90_000 + 60 * number,
            seed=number,
            samples=False,
        )
    make_run(home, "dpo-one", age=500, job={"stage": "dpo", "data": "data/samples/preference.jsonl"})
    with a_board(home) as one:
        yield one


@pytest.fixture
def runs(board: Board, page: Page) -> Page:
    return ready(page, board.url())


def first(page: Page) -> Locator:
    return page.locator("tr[data-run] .name a").first


def row(page: Page, name: str) -> Locator:
    return page.locator("tr[data-run]").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_thousand_runs_are_a_screenful_of_elements(runs: Page):
    expect(runs.get_by_test_id("count")).to_have_text("1,001 runs")
    assert runs.evaluate(NODES) < 1800
    runs.evaluate(
        "window.made = 0; new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach((row) => { "
        "window.made += row.dataset?.run ? 1 : 0; }))).observe(document.querySelector('tbody'), {childList: true})"
    )
    for number, share in ((299, 0.3), (899, 0.9), (499, 0.5)):
        runs.evaluate(f"window.scrollTo(0, document.body.scrollHeight * {share} - innerHeight / 2)")
        expect(runs.get_by_role("link", name=f"sweep-{number}", exact=True)).to_be_visible()
    runs.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(runs.get_by_role("link", name="sweep-999", exact=True)).to_be_in_viewport()
    assert runs.evaluate(NODES) < 1800
    assert runs.evaluate("window.made") < 4 * 45, "a jump draws the rows in sight, and no others"


def test_search_state_and_kind_narrow_the_list(runs: Page):
    runs.get_by_test_id("search").fill("sweep-01")
    expect(runs.get_by_test_id("count")).to_have_text("10 of 1,001 runs")
    runs.get_by_test_id("filter-state").select_option("failed")
    expect(runs.locator("tr[data-run]")).to_have_count(3)
    runs.get_by_test_id("search").fill("")
    runs.get_by_test_id("filter-state").select_option("")
    runs.get_by_test_id("filter-stage").select_option("dpo")
    expect(runs.locator("tr[data-run]")).to_have_count(1)
    runs.get_by_test_id("search").fill("nothing like it")
    expect(runs.locator(".empty")).to_be_visible()


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_it(runs: Page):
    runs.locator('[data-sort="loss"]').click()
    expect(runs.locator("th[aria-sort=ascending]")).to_have_text("Last loss")
    expect(first(runs)).not_to_have_text("dpo-one")
    runs.locator('[data-sort="name"]').click()
    expect(runs.locator("th[aria-sort=ascending]")).to_have_text("Name")
    expect(first(runs)).to_have_text("dpo-one")
    expect(runs.locator("tr[data-run] .name a").nth(1)).to_have_text("sweep-000")
    runs.locator('[data-sort="name"]').click()
    expect(runs.locator("th[aria-sort=descending]")).to_have_text("Name")
    expect(first(runs)).to_have_text("sweep-999")


def test_the_list_is_worked_by_keys_alone(runs: Page, board: Board):
    runs.keyboard.press("/")
    runs.keyboard.type("sweep-00")
    expect(runs.locator("tr[data-run]")).to_have_count(10)
    runs.keyboard.press("Tab")
    runs.evaluate("document.activeElement.blur()")
    for key in ("j", "x", "j", "j", "x"):
        runs.keyboard.press(key)
    expect(runs.locator("tr.picked")).to_have_count(2)
    expect(runs.locator("tr.current .name a")).to_have_text("sweep-002")
    runs.keyboard.press("k")
    expect(runs.locator("tr.current .name a")).to_have_text("sweep-001")
    runs.keyboard.press("c")
    runs.wait_for_url("**/compare?ids=*")
    expect(runs.get_by_test_id("compare-run")).to_have_count(2)
    runs.go_back()
    runs.wait_for_url(board.url())
    started(runs)
    runs.keyboard.press("j")
    runs.keyboard.press("Enter")
    runs.wait_for_url("**/run?id=*")
    started(runs)
    runs.keyboard.press("n")
    runs.wait_for_url("**/new")


def test_a_run_is_renamed_tagged_and_found_by_its_tag(runs: Page, board: Board):
    made = make_run(board.home, "to-name")
    row(runs, "to-name").get_by_role("button", name="Actions for to-name").click()
    runs.get_by_role("menuitem", name="Rename").click()
    runs.locator("#ask-title").fill("named well")
    runs.get_by_test_id("ask-yes").click()
    row(runs, "named well").get_by_role("button", name="Actions for").click()
    runs.get_by_role("menuitem", name="Tags and note").click()
    runs.locator("#ask-tags").fill("keep, baseline")
    runs.locator("#ask-note").fill("a note")
    runs.get_by_test_id("ask-yes").click()
    row(runs, "named well").get_by_role("button", name="keep", exact=True).click()
    expect(runs.locator("tr[data-run]")).to_have_count(1)
    expect(runs.locator(f'[data-run="{made.id}"]')).to_be_visible()


def test_deleting_asks_with_the_size_and_moves_to_the_trash(runs: Page, board: Board):
    made = [make_run(board.home, f"to-delete-{number}") for number in range(2)]
    runs.get_by_test_id("search").fill("to-delete")
    for name in ("to-delete-0", "to-delete-1"):
        row(runs, name).get_by_role("checkbox").check()
    runs.get_by_test_id("delete").click()
    expect(runs.get_by_test_id("ask")).to_contain_text("Delete 2 runs?")
    expect(runs.get_by_test_id("ask")).to_contain_text("KiB")
    runs.keyboard.press("Escape")
    expect(runs.get_by_test_id("ask")).to_have_count(0)
    assert all(run.path.is_dir() for run in made)
    runs.get_by_test_id("delete").click()
    runs.get_by_test_id("ask-yes").click()
    expect(runs.locator("tr[data-run]")).to_have_count(0)
    assert not any(run.path.exists() for run in made)
    assert len(list((board.home / "trash" / "runs").iterdir())) >= 2


def test_a_living_run_cannot_be_deleted_and_shows_what_is_left(runs: Page, board: Board):
    made = make_run(board.home, "busy", state="running", steps=10, total=100, age=20)
    with alive(made):
        expect(row(runs, "busy").get_by_test_id("state")).to_have_text("Running")
        expect(row(runs, "busy").locator(".time")).to_contain_text("left")
        row(runs, "busy").get_by_role("button", name="Actions for busy").click()
        expect(runs.get_by_role("menuitem", name="Delete")).to_be_disabled()
    expect(row(runs, "busy").get_by_test_id("state")).to_have_text("Lost")


def test_on_a_phone_each_run_is_a_card(board: Board, tab: Callable[..., Page]):
    page = tab(board, "/", viewport=PHONE)
    card = page.locator("tr[data-run]").first
    expect(card.locator(".name a")).to_be_in_viewport()
    expect(card.get_by_test_id("state")).to_be_in_viewport()
    no_wider(page, PHONE["width"])
    assert page.evaluate(NODES) < 1800


def test_a_comparison_says_which_of_its_runs_are_not_there(board: Board, page: Page, watcher: Watcher):
    watcher.allow("status of 40[34]|status of 422")
    made = make_run(board.home, "still-here")
    ready(page, board.url(f"/compare?ids={made.id},20200101-000000-gone-0000"))
    expect(page.get_by_test_id("compare-unknown")).to_contain_text("20200101-000000-gone-0000")
    expect(page.get_by_test_id("picker").get_by_role("checkbox", checked=True)).to_have_count(1)


def test_a_checkpoint_is_pinned_and_let_go_by_keys(board: Board, page: Page):
    made = make_run(board.home, "to-pin")
    folder = made.checkpoints / "checkpoint-2"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w")
    checkpoints.commit(folder, 2, "hash")
    ready(page, board.url(f"/run?id={made.id}"))
    pin, chip = page.get_by_test_id("pin-2"), page.get_by_test_id("checkpoints").locator(".chip")
    expect(pin).to_have_attribute("aria-pressed", "false")
    pin.focus()
    for pressed, chips in (("true", 1), ("false", 0)):
        page.keyboard.press("Enter")
        expect(pin).to_have_attribute("aria-pressed", pressed)
        expect(chip.filter(has_text="kept")).to_have_count(chips)
        expect(pin).to_be_focused()
        assert (folder / checkpoints.PIN).exists() is (pressed == "true")
    assert [one for one in violations(page) if "pin-" in one or "checkpoints" in one] == []
