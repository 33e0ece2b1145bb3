"""A real board on a home of its own, and a real browser that complains about everything a person would not see."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SHOTS = Path(__file__).parent / "shots"
"""Pictures that tests leave for people to look at; git ignores them."""
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
SLOWED = float(os.environ.get("FACTORY_UI_SLOWED", "1"))
"""How many times slower than this machine's the browser's scripts run; 6 or more shows what only a slow one meets."""
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 60_000
"""Milliseconds to wait for what comes by itself: nothing that works takes so long, whatever else the machine does."""
expect.set_options(timeout=PATIENCE)


class Board:
    """`factory board` as a process of its own; it can be ended and started again on the same port and home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.log = home.parent / f"{home.name}-board.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Board:
        """Start it and wait until it answers."""
        slots = self.home.parent / f"{self.home.name}-slots"
        environment = {**os.environ, "FACTORY_HOME": str(self.home), "FACTORY_SLOTS": str(slots)}
        command = [sys.executable, "-m", "core.cli", "board", "--no-token", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log.read_text("utf-8")
            try:
                with urllib.request.urlopen(f"{self.url()}api/health", timeout=20):
                    return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the board did not start: {self.log.read_text('utf-8')}")

    def end(self, sign: int = signal.SIGTERM) -> None:
        """End it; runs go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sign)
            self._process.wait(timeout=120)

    def url(self, path: str = "/") -> str:
        """The address of a page."""
        return f"http://127.0.0.1:{self.port}{path}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def a_board(home: Path) -> Iterator[Board]:
    """A board on a home that is made if missing; ended with the block."""
    from core.runs.home import open_home

    home.mkdir(parents=True, exist_ok=True)
    open_home(home)
    board = Board(home)
    try:
        yield board.start()
    finally:
        board.end()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    assert CHROMIUM, (
        "tests/ui need Chromium: apt-get install chromium fonts-inter fonts-noto-cjk fonts-jetbrains-mono"
    )
    with sync_playwright() as playwright:
        yield (chromium := playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS))
        chromium.close()


class Watcher:
    """Everything that went wrong in pages unseen: errors on the console, requests to elsewhere, dialogs, failures."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.allowed: list[str] = []

    def watch(self, page: Page) -> Page:
        """Note what this page does wrong from now on."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.seen.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._elsewhere(request.url))
        return page

    def _console(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.seen.append(f"console: {said.text}")

    def allow(self, pattern: str) -> None:
        """What a test does on purpose (a server that is away) is no fault."""
        self.allowed.append(pattern)

    def _elsewhere(self, url: str) -> None:
        if not re.match(r"(https?://127\.0\.0\.1:\d+/|data:|blob:)", url):
            self.seen.append(f"request: {url}")

    @property
    def faults(self) -> list[str]:
        """What was seen and is not allowed."""
        return [one for one in self.seen if not any(re.search(pattern, one) for pattern in self.allowed)]


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """Fails the test when a page did something that nobody should have to see."""
    watching = Watcher()
    yield watching
    assert watching.faults == []


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh browser profile on a desktop screen."""
    made = browser.new_context(viewport=DESKTOP, locale="en-GB", color_scheme="light")  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, watcher: Watcher) -> Page:
    """A tab in it, watched."""
    return watcher.watch(context.new_page())


def slowed(page: Page, rate: float) -> Page:
    """A page whose scripts have a machine `rate` times slower than this one; 1 is this one."""
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": rate})
    return page


def ready(page: Page, address: str) -> Page:
    """Open an address and wait until the page's own script has filled it."""
    page.set_default_timeout(PATIENCE)
    slowed(page, SLOWED)
    page.goto(address, wait_until="commit")
    return started(page)


def started(page: Page) -> Page:
    """Wait until the page's own script has filled it."""
    page.wait_for_selector("[data-page][data-started]")
    return page


def until(page: Page, look: Callable[[], Any], wanted: Any, seconds: float = PATIENCE / 1000) -> None:
    """Wait until what `look` sees is the wanted: for what no locator can expect, as a file or several words at once."""
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"still {seen!r}, not {wanted!r}"
        page.wait_for_timeout(30)  # and not time.sleep: the browser's own news are heard meanwhile


def calm(page: Page) -> Page:
    """Wait until nothing moves any more: fonts are there, what fades or slides has arrived, charts have their size."""
    page.evaluate(
        """async () => {
          const frames = async (n) => { while (n--) await new Promise(requestAnimationFrame); };
          const ends = (one) => one.playState === "running" && one.effect.getComputedTiming().endTime !== Infinity;
          await document.fonts.ready;
          await frames(3);
          await Promise.allSettled(document.getAnimations().filter(ends).map((one) => one.finished));
          await frames(2);
        }"""
    )
    return page


def no_wider(page: Page, width: int) -> None:
    """Wait until the page fits a screen of this width without a scroll to the side."""
    until(page, lambda: page.evaluate("document.documentElement.scrollWidth"), width)


@pytest.fixture
def tab(browser: Browser, watcher: Watcher) -> Iterator[Callable[..., Page]]:
    """`tab(board, "/run?id=x", viewport=..., color_scheme=...)`: a page in a profile of its own, ready."""
    contexts = []

    def make(board: Board, path: str = "/", **options: Any) -> Page:
        made = browser.new_context(
            **{"viewport": DESKTOP, "locale": "en-GB", "color_scheme": "light", **options}
        )
        contexts.append(made)
        return ready(watcher.watch(made.new_page()), board.url(path))

    yield make
    for one in contexts:
        one.close()


def violations(page: Page) -> list[str]:
    """What axe finds wrong on a page, with the place of each."""
    from axe_playwright_python.sync_playwright import Axe

    wanted = {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }
    # The same rules over the same elements; what is right is not listed in 800 KB, which takes longer than to look.
    options = {"runOnly": wanted, "resultTypes": ["violations"]}
    found = Axe().run(calm(page), options=options).response["violations"]
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')[:200]}"
        for one in found
        for node in one["nodes"]
    ]


def shot(page: Page, name: str) -> None:
    """Keep a picture of a page."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
