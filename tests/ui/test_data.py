"""Files come by drag, are told apart, mapped by hand where need be, shown token by token, and lead to a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_plus, urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Board, a_board, ready, started, until

DROP = """([name, text]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], name));
  const drop = new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true});
  document.querySelector('[data-testid=drop]').dispatchEvent(drop);
}"""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory, zygote) -> Iterator[Board]:
    with a_board(tmp_path_factory.mktemp("data") / "home") as one:
        zygote.call("tests.tiny:save_tiny_at", folder=str(one.home / "models" / "tiny"))
        yield one


def sent(page: Page, board: Board, name: str, text: str) -> Page:
    ready(page, board.url("/data"))
    page.evaluate(DROP, [name, text])
    page.wait_for_url("**/data?file=*")
    return started(page)


def test_a_dropped_file_is_kept_listed_and_deleted_after_a_question(board: Board, page: Page):
    name = "问答 'a' 1.jsonl"
    sent(page, board, name, '{"prompt": "a", "completion": "b"}\n' * 5)
    expect(page.get_by_test_id("file-title")).to_have_text(name)
    expect(page.get_by_test_id("facts")).to_contain_text("prompt completion")
    ready(page, board.url("/data"))
    row = page.get_by_test_id("files").locator("tr", has_text=name)
    row.get_by_role("button", name="Delete").click()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("ask")).to_have_count(0)
    assert (board.home / "data" / name).is_file()
    row.get_by_role("button", name="Delete").click()
    page.get_by_test_id("ask-yes").click()
    expect(page.get_by_role("heading", name="No files yet")).to_be_visible()
    assert not (board.home / "data" / name).exists()


def test_a_name_that_is_taken_keeps_both(board: Board, page: Page, watcher):
    watcher.allow("409|422")
    for text in ("one", "two"):
        ready(page, board.url("/data"))
        page.evaluate(DROP, ["twice.jsonl", f'{{"text": "{text}"}}\n'])
        if text == "two":
            expect(page.get_by_test_id("ask")).to_contain_text("twice-2.jsonl")
            page.get_by_test_id("ask-yes").click()
        page.wait_for_url("**/data?file=*")
    assert {path.name for path in (board.home / "data").glob("twice*")} == {"twice.jsonl", "twice-2.jsonl"}


def test_a_name_that_is_taken_can_be_replaced_and_the_old_file_is_in_the_trash(
    board: Board, page: Page, watcher
):
    watcher.allow("409")
    for text in ("old", "new"):
        ready(page, board.url("/data"))
        page.evaluate(DROP, ["mine.jsonl", f'{{"text": "{text}"}}\n'])
        if text == "new":
            expect(page.get_by_test_id("ask")).to_contain_text("goes to the trash")
            page.get_by_test_id("ask-other").click()
        page.wait_for_url("**/data?file=*")
    assert '"new"' in (board.home / "data" / "mine.jsonl").read_text("utf-8")
    assert '"old"' in (board.home / "trash" / "data" / "mine.jsonl").read_text("utf-8")


def test_what_is_dropped_is_told_with_its_reason_and_line(board: Board, page: Page):
    good = '{"prompt": "How much?", "completion": "Two."}\n'
    sent(page, board, "bad.jsonl", good * 3 + '{"prompt": "x", "completion": ""}\nnot json\n' + good)
    expect(page.get_by_test_id("facts")).to_contain_text("Dropped2")
    dropped = page.get_by_test_id("dropped")
    expect(dropped).to_contain_text("the answer is empty")
    expect(dropped).to_contain_text("line 4")
    expect(dropped).to_contain_text("line 5")
    expect(page.get_by_test_id("stages").locator("li.yes .what")).to_have_text(["SFT"])


def test_labels_are_weighed(board: Board, page: Page):
    ready(page, board.url("/data?file=data/samples/thumbs.jsonl"))
    expect(page.locator("[aria-label=Labels]")).to_contain_text("good 32")
    expect(page.locator("[aria-label=Labels]")).to_contain_text("bad 43")


def test_columns_of_an_unknown_file_are_mapped_by_hand_into_the_job(board: Board, page: Page, watcher):
    watcher.allow("422|400")
    sent(page, board, "odd.jsonl", '{"foo": "What is it?", "bar": "A boat.", "baz": "no"}\n' * 4)
    expect(page.get_by_test_id("refused")).to_contain_text("foo")
    page.get_by_test_id("column-prompt").select_option("foo")
    page.get_by_test_id("column-completion").select_option("bar")
    expect(page.get_by_test_id("facts")).to_contain_text("Rows read4")
    expect(page.get_by_test_id("refused")).to_have_count(0)
    expect(page.get_by_test_id("data-yaml")).to_contain_text("prompt: foo")
    address = unquote_plus(page.get_by_test_id("train-on-it").get_attribute("href") or "")
    assert "columns:\n    prompt: foo\n    completion: bar" in address and "stage: sft" in address


def tokens(page: Page, board: Board, sample: str, length: str = "") -> Page:
    """The rows of a sample with the tiny model's tokenizer; reading them takes a process that imports a library."""
    asked = urlencode(
        {
            "file": f"data/samples/{sample}.jsonl",
            "model": board.home / "models" / "tiny",
            "max_length": length,
        }
    )
    ready(page, board.url(f"/data?{asked}"))
    page.get_by_test_id("token-rows").scroll_into_view_if_needed()
    expect(page.locator(".token-row")).to_have_count(3, timeout=120_000)
    return page


def test_every_token_of_a_chat_is_coloured_by_what_happens_to_it(board: Board, page: Page):
    tokens(page, board, "persona", "40")
    first = page.locator(".token-row").first
    for mask in ("learnt", "read", "cut"):
        expect(first.locator(f".token-{mask}")).not_to_have_count(0)
    learnt = "".join(first.locator(".token-learnt").all_inner_texts())
    assert "user" not in learnt
    expect(page.locator(".token-legend")).to_have_text("learntread, not learntcut offpadding")


def test_a_pair_stands_side_by_side(board: Board, page: Page):
    tokens(page, board, "preference")
    first = page.locator(".token-row").first
    expect(first.locator(".two > div")).to_have_count(2)
    expect(first).to_contain_text("Chosen")
    expect(first).to_contain_text("Rejected")
    expect(page.locator(".token-padding")).not_to_have_count(0)


def test_an_upload_shows_how_far_it_is_and_can_be_stopped(board: Board, page: Page, tmp_path: Path):
    big = tmp_path / "big.jsonl"
    big.write_text('{"text": "' + "x" * 1000 + '"}\n' * 1)
    with big.open("ab") as file:
        file.truncate(200 << 20)
    ready(page, board.url("/data"))
    line = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 4 << 20}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", line)  # 50 s for all of it
    here = board.home / "data"
    page.get_by_test_id("file-input").set_input_files(big)
    expect(page.locator(".sending")).to_contain_text("MiB")
    until(page, lambda: len(list(here.glob(".upload-*.part"))), 1)
    page.locator(".sending").get_by_role("button", name="Stop").click()
    expect(page.locator(".sending")).to_have_count(0)
    until(page, lambda: [*here.glob(".upload-*.part"), *here.glob("big*")], [])


def test_models_tell_where_they_are_from(board: Board, page: Page):
    ready(page, board.url("/models"))
    expect(page.get_by_test_id("models-base")).to_contain_text("smollm2-135m")
    link = page.get_by_test_id("models-base").get_by_role("link", name="Train from it").first
    assert "model:" in unquote_plus(link.get_attribute("href") or "")
