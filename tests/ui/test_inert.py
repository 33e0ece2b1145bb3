"""What runs, logs, answers and files say is text, whatever it looks like: nothing runs, nothing becomes markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.runs.about import write_about
from core.runs.folder import Run
from tests.ui.conftest import Board, a_board, ready
from tests.ui.made import append, make_run

EVIL = '<img src=x onerror="window.evil=1"><script>window.evil=1</script>{{7*7}}${7*7}'
SHORT = "<img src=x onerror=evil=1>"
STRANGE = 'img:not([src^="/ui/"]), iframe, object, [onerror], a[href^="javascript:"]'
STRANGERS = f"document.querySelectorAll({STRANGE!r}).length"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("inert") / "home") as one:
        yield one


@pytest.fixture(scope="module")
def run(board: Board) -> Run:
    """A failed run of which every word is an attack."""
    facts = {"reason": EVIL, "fault": "out_of_memory", "user": EVIL}
    made = make_run(
        board.home, "evil", state="failed", steps=8, total=20, facts=facts, log=[EVIL, "\x1b[31mred\x1b[0m"]
    )
    write_about(made, title=EVIL[:100], tags=[SHORT], note=EVIL)
    append(
        made,
        {"event": "sample", "step": 8, "kind": "during", "prompt": EVIL, "answer": EVIL},
        {
            "event": "sample",
            "step": 8,
            "kind": "during",
            "prompt": EVIL,
            "answer": EVIL,
            "scores": {EVIL: 1.0},
        },
        {"event": "metric", "step": 9, "values": {EVIL: 1.0, "loss": 1.0}},
        {"event": "warning", "code": EVIL, "message": EVIL, "level": EVIL},
        {"event": "phase", "name": EVIL, "text": EVIL},
        {"event": "checkpoint", "step": 9, "path": EVIL},
        {"event": "error", "code": EVIL, "message": EVIL},
    )
    return made


def harmless(page: Page) -> None:
    """Nothing of it became an element; what would run by itself has had its turn."""
    page.evaluate("async () => { await fetch('/api/health'); await new Promise(requestAnimationFrame); }")
    assert page.evaluate("window.evil") is None
    assert page.evaluate(STRANGERS) == 0


def test_in_the_list(board: Board, run: Run, page: Page):
    ready(page, board.url())
    expect(page.locator(f'[data-run="{run.id}"] .name a')).to_have_text(EVIL[:100].strip())
    page.get_by_role("checkbox", name="Select").first.check()
    page.get_by_test_id("delete").click()
    expect(page.get_by_test_id("ask")).to_contain_text("<img src=x")
    harmless(page)


def test_on_its_own_page(board: Board, run: Run, page: Page):
    ready(page, board.url(f"/run?id={run.id}"))
    expect(page.get_by_test_id("run-title")).to_contain_text("<img src=x")
    expect(page.get_by_test_id("error-card")).to_contain_text(EVIL)
    expect(page.get_by_test_id("samples")).to_contain_text(EVIL)
    expect(page.get_by_test_id("events")).to_contain_text(EVIL)
    expect(page.get_by_test_id("log").locator(".line").first).to_have_text(EVIL)
    expect(page.get_by_test_id("log").locator(".line").last).to_have_text("red")
    page.get_by_test_id("all-charts").click()
    expect(page.locator(".chart h3", has_text="<img src=x")).to_be_visible()
    page.get_by_test_id("log-search").fill("<script>")
    expect(page.get_by_test_id("log").locator("mark").first).to_have_text("<script>")
    harmless(page)


def test_beside_others(board: Board, run: Run, page: Page):
    other = make_run(board.home, "other", steps=5)
    ready(page, board.url(f"/compare?ids={run.id},{other.id}"))
    expect(page.get_by_test_id("compare-samples")).to_contain_text(EVIL)
    expect(page.get_by_test_id("final")).to_contain_text(EVIL)
    harmless(page)


@pytest.mark.parametrize(
    "path",
    ["/run?id=%3Cscript%3E", "/compare?ids=%3Cimg+src%3Dx%3E,%22%3E", "/data?file=%3Csvg+onload%3D1%3E"],
)
def test_in_an_address(path: str, board: Board, page: Page, watcher):
    watcher.allow("40[0-9]|422")
    ready(page, board.url(path))
    harmless(page)


def test_in_a_data_file(board: Board, page: Page, tmp_path: Path):
    file = tmp_path / "evil <b>.jsonl"
    name = EVIL.replace('"', "'")
    rows = [f'{{"prompt": "{name}", "completion": "{name}", "{name}": 1}}'] * 3 + [
        "<script>window.evil=1</script>"
    ]
    file.write_text("\n".join(rows))
    ready(page, board.url("/data"))
    page.get_by_test_id("file-input").set_input_files(file)
    page.wait_for_url("**/data?file=*")
    expect(page.get_by_test_id("file-title")).to_contain_text("evil")
    expect(page.get_by_test_id("column-prompt").locator("option", has_text="<img src=x")).to_have_count(1)
    expect(page.get_by_test_id("dropped")).to_contain_text("<script>")
    harmless(page)
