"""Every page, light and dark, on desktop and phone: accessible, nothing to the side, no error, no request elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from core.runs.folder import Run
from tests.ui.conftest import PHONE, Board, a_board, calm, no_wider, shot, violations
from tests.ui.made import alive, append, make_run

WARNING = {"event": "warning", "code": "answers_cut", "message": "More than 80 % of the answers are cut."}
OUT_OF_MEMORY = {"reason": "Memory ran out in a batch of 8 x 2,048 tokens.", "fault": "out_of_memory"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Board, dict[str, Run]]]:
    """A board with a run in every state."""
    with a_board(tmp_path_factory.mktemp("look") / "home") as board:
        make = lambda name, **how: make_run(board.home, name, **how)  # noqa: E731
        runs = {
            "succeeded": make("quickstart", age=7200),
            "failed": make("too-big", state="failed", steps=8, total=200, facts=OUT_OF_MEMORY, age=90_000),
            "stopped": make("half-way", state="stopped", steps=40, total=100, age=9000),
            "lost": make("power-cut", state="lost", steps=20, total=100, age=50_000),
            "running": make("answers", state="running", steps=120, total=400, age=160),
            "starting": make("just-begun", state="running", steps=0, total=100, age=5, samples=False, log=[]),
            "stopping": make("on-its-way-out", state="stopping", steps=30, total=100, age=60),
            "queued": make("waiting", state="queued", steps=0, total=100, age=30, log=[]),
        }
        append(runs["running"], WARNING)
        with alive(*(runs[name] for name in ("running", "starting", "stopping", "queued"))):
            yield board, runs


PAGES = {
    "runs": "/",
    **{
        f"run-{state}": f"/run?id={{{state}}}"
        for state in ("succeeded", "failed", "stopped", "lost", "running", "starting", "stopping", "queued")
    },
    "compare-picker": "/compare",
    "compare": "/compare?ids={succeeded},{stopped}",
    "data": "/data",
    "data-file": "/data?file=data/samples/preference.jsonl",
    "models": "/models",
    "chat": "/chat",
}


@pytest.mark.parametrize("name", PAGES)
def test_is_accessible_fits_and_is_quiet(
    name: str, home: tuple[Board, dict[str, Run]], tab: Callable[..., Page]
):
    page = opened(name, home, tab)
    for theme in ("light", "dark"):
        page.evaluate("(theme) => window.factory.setTheme(theme)", theme)
        shot(calm(page), f"{name}-{theme}")
        assert violations(page) == [], theme
    page.set_viewport_size(PHONE)
    no_wider(page, PHONE["width"])
    shot(calm(page), f"{name}-phone")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_fits_a_phone_in_chinese(name: str, home: tuple[Board, dict[str, Run]], tab: Callable[..., Page]):
    page = opened(name, home, tab, viewport=PHONE, locale="zh-CN", color_scheme="dark")
    no_wider(page, PHONE["width"])
    shot(calm(page), f"{name}-phone-zh")
    assert violations(page) == []


def opened(name: str, home: tuple[Board, dict[str, Run]], tab: Callable[..., Page], **options: Any) -> Page:
    board, runs = home
    return tab(board, PAGES[name].format(**{state: run.id for state, run in runs.items()}), **options)
