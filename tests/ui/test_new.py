"""New run in a real browser: form and YAML both ways, problems under their fields, fixes, drafts, start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, expect

from core.runs import control
from core.runs.folder import Run
from tests.faults.conftest import over
from tests.ui.conftest import (
    PHONE,
    ROOT,
    Board,
    a_board,
    calm,
    no_wider,
    shot,
    slowed,
    started,
    until,
    violations,
)

Open = Callable[..., Page]
JOB = "model: smollm2-135m\ndata: data/samples/persona.jsonl\nstage: sft\n"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """One board for all tests of this page."""
    with a_board(tmp_path_factory.mktemp("new") / "home") as one:
        yield one


@pytest.fixture
def new(board: Board, tab: Open) -> Page:
    """The page, empty."""
    return tab(board, "/new")


def text_of(page: Page) -> str:
    """The job as the page has it."""
    return page.get_by_test_id("yaml").input_value()


def said(page: Page) -> dict[str, object]:
    """The job's plain values."""
    return yaml.safe_load(text_of(page)) or {}


def paste(page: Page, text: str) -> None:
    """Put a text in place of the job and apply it."""
    page.get_by_test_id("yaml").fill(text)
    page.get_by_test_id("apply").click()


def field(page: Page, name: str, kind: str = "input"):
    """The input of a field's widget."""
    return page.locator(f"#f-{name} {kind}").first


def filled(page: Page) -> None:
    """Wait until Gradio has shown all that it was given."""
    page.wait_for_selector("#content:not([data-filling])")


def recipe(page: Page, name: str) -> None:
    """Take a recipe from the menu."""
    page.get_by_test_id("recipes").click()
    page.get_by_test_id(f"recipe-{name}").click()


def test_from_nothing_to_a_job_that_can_start(new):
    expect(new.get_by_test_id("blocks")).to_contain_text("Base model, Data, Training")
    new.get_by_role("radio", name=re.compile("^Chats")).check()
    expect(new.locator("#f-stage input:checked")).to_have_value("sft")
    field(new, "model-name").click()
    new.get_by_role("option", name=re.compile("smollm2-135m")).click()
    field(new, "data").click()
    new.get_by_role("option", name="data/samples/persona.jsonl").click()
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")
    expect(new.get_by_test_id("yaml")).to_have_value(JOB)
    expect(new.get_by_test_id("forecast")).to_contain_text("Memory needed")


def test_what_somebody_has_leads_to_the_stages_that_learn_from_it(new):
    new.get_by_role("radio", name=re.compile("^Better and worse")).check()
    expect(new.locator("#f-stage input:checked")).to_have_value("dpo")
    seen = new.locator("#f-stage label:visible input")
    until(new, lambda: sorted(one.input_value() for one in seen.all()), ["dpo", "orpo", "reward"])
    expect(new.locator("#f-stage-dpo-beta")).to_be_visible()
    expect(new.locator("#f-stage-sft-packing")).to_be_hidden()
    new.get_by_role("radio", name=re.compile("^Prompts")).check()
    expect(new.locator("#rewards-card")).to_be_visible()


def test_the_yaml_follows_every_key_and_only_says_what_was_set(new):
    paste(new, JOB)
    field(new, "train-learning_rate").press_sequentially("3e-4")
    expect(new.get_by_test_id("yaml")).to_have_value(JOB + "train:\n  learning_rate: 0.0003\n")
    field(new, "train-learning_rate").fill("")
    expect(new.get_by_test_id("yaml")).to_have_value(JOB)


def test_what_is_written_while_a_text_is_being_applied_stays(new):
    held = []
    new.route("**/api/jobs/form", lambda route: route.continue_() if held else held.append(route))
    paste(new, JOB)
    until(new, lambda: len(held), 1)
    new.get_by_test_id("yaml").fill(JOB + "name: written on\n")
    with new.expect_response("**/api/jobs/form"):
        held[0].continue_()
    expect(new.get_by_test_id("yaml")).to_have_value(JOB + "name: written on\n")
    new.get_by_test_id("apply").click()
    expect(field(new, "name")).to_have_value("written on")


TYPED = {
    "name": ("my run", "name: my run"),
    "train-learning_rate": ("3e-4", "learning_rate: 0.0003"),
    "evaluate-prompts": ("Who is it", "prompts: [Who is it]"),
}
FULL = JOB + "name: pasted\ntrain: {learning_rate: 0.5, seed: 9, epochs: 4}\nevaluate: {prompts: [What]}\n"


def test_no_key_is_lost_while_a_text_fills_the_form_on_a_slow_machine(new):
    """Keys go on while Gradio is late with its widgets: what was pressed stands there, and in the text."""
    new.evaluate(
        """() => {
          const real = window.factory.shown;
          window.factory.shown = async (ids) => {
            const told = real(ids);
            await new Promise((done) => setTimeout(done, 400));
            return told;
          };
        }"""
    )
    for job, (name, (text, written)) in zip((FULL, JOB, FULL), TYPED.items(), strict=True):
        paste(new, job)
        expect(new.get_by_test_id("yaml")).to_have_value(job)
        typed = field(new, name, ":is(textarea, input)")
        typed.select_text()
        new.keyboard.type(text, delay=80)
        expect(new.get_by_test_id("yaml")).to_have_value(re.compile(re.escape(written)))
        filled(new)
        expect(typed).to_have_value(text)
        expect(new.get_by_test_id("yaml")).to_have_value(re.compile(re.escape(written)))


@pytest.mark.parametrize("after", [0, 8, 40])
def test_choices_and_switches_set_while_a_text_fills_the_form_stay(new, watcher, after):
    """At the worst moment: Gradio has been given what to show, and is about to show it."""
    watcher.allow("status of 422")  # the sample holds no pairs for dpo
    new.get_by_test_id("more").click()
    slowed(new, 8)
    new.evaluate(
        """after => {
          const real = window.factory.shown;
          window.factory.shown = (ids) => {
            const told = real(ids);
            const press = () => {
              document.querySelector("#f-stage input[value=dpo]").click();
              document.querySelector("#f-train-padding_free input").click();
            };
            if (told[ids.indexOf("stage")].value === "pretrain") after ? setTimeout(press, after) : press();
            return told;
          };
        }""",
        after,
    )
    paste(new, JOB.replace("sft", "pretrain") + "train: {scheduler: cosine}\n")
    expect(new.locator("#f-stage input:checked")).to_have_value("dpo")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("stage: dpo"))
    expect(field(new, "train-scheduler")).to_have_value("cosine")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("padding_free: false"))
    expect(new.locator("#f-train-padding_free input")).not_to_be_checked()
    filled(new)
    expect(new.locator("#f-stage input:checked")).to_have_value("dpo")


def test_what_is_written_in_a_list_of_choices_stays_while_the_form_is_filled(new):
    slowed(new, 8)
    model = field(new, "model-name")
    model.click()
    new.keyboard.type("some/")
    new.get_by_test_id("yaml").evaluate(
        """(area, text) => {
          area.value = text;
          area.dispatchEvent(new Event("input", { bubbles: true }));
          document.querySelector("[data-testid=apply]").click();
        }""",
        JOB,
    )
    new.keyboard.type("model-1", delay=40)
    expect(model).to_have_value("some/model-1")
    new.keyboard.press("Tab")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("model: some/model-1"))
    expect(model).to_have_value("some/model-1")


def test_what_is_typed_before_the_page_is_whole_counts(board, tab):
    """The draft comes when the page is there; what somebody typed meanwhile is a change of that draft."""
    page = tab(board, "/new")
    paste(page, JOB)
    expect(page.get_by_test_id("verdict")).to_have_text("Ready to start")
    held = []
    page.route("**/api/jobs/form?*", lambda route: held.append(route))
    page.reload(wait_until="commit")
    field(page, "name").press_sequentially("early bird")
    until(page, lambda: len(held), 1)
    held[0].continue_()
    started(page)
    expect(page.get_by_test_id("yaml")).to_have_value("name: early bird\n" + JOB)
    expect(field(page, "name")).to_have_value("early bird")


def test_a_number_stays_as_it_is_typed_and_a_word_is_no_number(new):
    paste(new, JOB)
    new.get_by_test_id("more").click()
    rate = field(new, "train-learning_rate")
    rate.fill("1.")
    new.get_by_role("radio", name=re.compile("^Full")).check()
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("method: full"))
    expect(rate).to_have_value("1.")
    rate.fill("fast")
    expect(new.locator("#f-train-learning_rate .told")).to_contain_text("Must be a number")
    expect(rate).to_have_value("fast")


def test_an_edited_text_is_not_lost_when_somebody_goes_on_in_the_form(new):
    paste(new, JOB)
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")
    new.get_by_test_id("yaml").fill(JOB + "name: edited\n")
    field(new, "train-epochs").press_sequentially("2")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("name: edited\n(.*\n)*  epochs: 2\n"))
    expect(field(new, "name")).to_have_value("edited")
    new.get_by_test_id("yaml").fill(JOB + "train: [")
    field(new, "train-epochs").press_sequentially("5")
    expect(new.get_by_test_id("yaml-wrong")).to_contain_text("cannot be read")
    expect(new.get_by_test_id("yaml")).to_have_value(JOB + "train: [")


def test_a_preset_stands_in_its_empty_field(new):
    paste(new, JOB)
    expect(field(new, "train-learning_rate")).to_have_attribute("placeholder", "preset: 2e-4")
    new.get_by_role("radio", name=re.compile("^Full")).check()
    expect(field(new, "train-learning_rate")).to_have_attribute("placeholder", "preset: 2e-5")


def test_a_problem_stands_under_its_field_at_once_and_is_announced(new):
    paste(new, JOB)
    rate = field(new, "train-learning_rate")
    rate.fill("5")
    expect(rate).to_have_attribute("aria-invalid", "true")
    told = new.locator(f"#{rate.get_attribute('aria-describedby')}")
    expect(told).to_have_text("Must be a number from 0 to 1.")
    expect(new.get_by_test_id("told")).to_have_text("Must be a number from 0 to 1.")
    expect(new.get_by_test_id("blocks")).to_contain_text("Learning rate")
    rate.fill("1e-4")
    expect(told).to_have_count(0)
    expect(rate).not_to_have_attribute("aria-invalid", "true")
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")


def test_a_key_asks_once_and_at_once_and_the_answer_marks_its_field(new):
    """What a person feels: nothing waits for a pause in typing, and one short question tells what is wrong."""
    paste(new, JOB)
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")
    field(new, "train-learning_rate").fill("1")
    expect(new.get_by_test_id("yaml")).to_have_value(JOB + "train:\n  learning_rate: 1\n")
    asked_at_once, asked_until_marked = new.evaluate(
        """async () => {
          const input = document.querySelector("#f-train-learning_rate input");
          const real = window.fetch;
          let asked = 0;
          window.fetch = (...words) => { asked += String(words[0]).includes("/jobs/form"); return real(...words); };
          const setter = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
          setter.call(input, "7");
          input.dispatchEvent(new Event("input", { bubbles: true }));
          const door = new MessageChannel();  // the next turn of the loop, before any timer
          await new Promise((done) => { door.port1.onmessage = done; door.port2.postMessage(0); });
          const atOnce = asked;
          const wrong = () => input.getAttribute("aria-invalid") === "true";
          await new Promise((done) => { const look = () => wrong() ? done() : setTimeout(look, 1); look(); });
          window.fetch = real;
          return [atOnce, asked];
        }"""
    )
    assert (asked_at_once, asked_until_marked) == (1, 1)


def test_start_leads_to_what_is_wrong(new):
    paste(new, JOB + "evaluate: {every: 0}\ntrain: {seed: -1}\n")
    expect(new.get_by_test_id("verdict")).to_have_text("2 things to fix")
    new.get_by_test_id("blocks").get_by_role("button", name="Seed").click()
    expect(new.locator("#more-body")).to_be_visible()
    expect(field(new, "train-seed")).to_be_focused()


def test_an_edited_text_fills_the_form_and_loses_nothing(new):
    text = "# my job\n" + JOB + "odd: 3\nmethod: {name: lora, rank: 4} # small\ntrain:\n  epochs: no\n"
    paste(new, text)
    expect(new.get_by_test_id("yaml")).to_have_value(text)
    expect(field(new, "method-lora-rank")).to_have_value("4")
    expect(new.get_by_test_id("verdict")).to_have_text("2 things to fix")
    expect(new.get_by_test_id("form-findings")).to_contain_text("odd is not a field")
    expect(new.locator("#f-train-epochs .told")).to_contain_text("Must be a number")
    field(new, "method-lora-rank").fill("8")
    expect(new.get_by_test_id("yaml")).to_have_value(text.replace("rank: 4", "rank: 8"))


def test_a_text_that_is_no_yaml_says_where_and_leaves_the_form_alone(new):
    paste(new, JOB)
    paste(new, JOB + "train: [")
    expect(new.get_by_test_id("yaml-wrong")).to_contain_text("cannot be read")
    expect(field(new, "data", ".token")).to_be_visible()
    new.get_by_test_id("discard").click()
    expect(new.get_by_test_id("yaml")).to_have_value(JOB)


def test_a_refused_text_takes_the_old_findings_away_and_blocks_start_until_it_is_discarded(new):
    paste(new, JOB + "train: {epochs: x}\nodd: 1\n")
    expect(new.locator("#f-train-epochs .told")).to_be_visible()
    expect(new.get_by_test_id("form-findings")).to_contain_text("odd is not a field")
    paste(new, JOB + "train: [")
    expect(new.get_by_test_id("yaml-wrong")).to_contain_text("cannot be read")
    expect(new.locator("#f-train-epochs .told")).to_have_count(0)
    expect(new.get_by_test_id("form-findings")).to_be_empty()
    expect(new.get_by_test_id("verdict")).to_have_text("1 thing to fix")
    expect(new.get_by_test_id("start")).to_have_attribute("aria-disabled", "true")
    new.get_by_test_id("discard").click()
    expect(new.get_by_test_id("yaml-wrong")).to_be_empty()
    expect(new.locator("#f-train-epochs .told")).to_be_visible()


def test_an_address_without_a_page_has_the_way_back(new, watcher):
    watcher.allow("status of 404")  # the browser says so itself
    base = new.url.split("/new")[0]
    assert new.goto(f"{base}/nothing-here").status == 404
    expect(new.get_by_test_id("nav-runs")).to_be_visible()
    expect(new.locator("h1")).to_have_text("There is no such page")
    new.goto(f"{base}/runs")
    expect(new).to_have_url(f"{base}/")


def test_a_file_of_yaml_is_imported(new, tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "name: from a file\n", "utf-8")
    new.get_by_test_id("yaml-file").set_input_files(path)
    expect(field(new, "name", ":is(textarea, input)")).to_have_value("from a file")


def test_every_recipe_fills_the_form_and_is_kept_letter_for_letter(new):
    for path in sorted((ROOT / "templates" / "jobs").glob("*-cpu.yaml")):
        recipe(new, path.stem)
        expect(new.get_by_test_id("yaml")).to_have_value(path.read_text("utf-8"))
        expect(field(new, "name", ":is(textarea, input)")).to_have_value(path.stem)


def test_a_fix_is_one_click(new):
    paste(new, JOB.replace("smollm2-135m", "smollm2-136m"))
    new.locator("#f-model-name").get_by_test_id("fix").click()
    expect(new.get_by_test_id("yaml")).to_have_value(JOB)
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")


def test_rewards_are_added_changed_and_removed(new):
    recipe(new, "grpo-cpu")
    expect(new.get_by_test_id("rewards-1")).to_contain_text("Length")
    new.get_by_test_id("rewards-1-weight").fill("0.5")
    new.wait_for_function("document.querySelector('[data-testid=yaml]').value.includes('weight: 0.5')")
    new.get_by_test_id("add-rewards").select_option("judge")
    expect(new.get_by_test_id("rewards-2").locator(".told").first).to_be_visible()
    new.get_by_role("button", name="Remove Judge model").click()
    expect(new.get_by_test_id("rewards-2")).to_have_count(0)
    until(new, lambda: [one["name"] for one in said(new)["rewards"]], ["accuracy", "length"])


def test_more_settings_has_every_other_field_and_finds_them(new):
    paste(new, JOB)
    new.get_by_test_id("more").click()
    new.get_by_test_id("more-search").fill("neftune_alpha")
    expect(new.locator("#more-body .f:visible")).to_have_count(1)
    field(new, "train-neftune_alpha").fill("5")
    new.wait_for_function("document.querySelector('[data-testid=yaml]').value.includes('neftune_alpha: 5')")


def test_a_choice_that_is_a_word_of_gradios_own_is_told_both_ways(new):
    new.get_by_test_id("more").click()
    choice = new.locator("#f-data-documents")
    expect(choice.get_by_label("whole file")).to_be_checked()
    choice.get_by_label("line").check()
    expect(new.get_by_test_id("yaml")).to_have_value("data:\n  documents: line\n")
    choice.get_by_label("whole file").check()
    expect(new.get_by_test_id("yaml")).to_have_value("")
    paste(
        new,
        JOB.replace(
            "data: data/samples/persona.jsonl", "data: {path: data/samples/persona.jsonl, documents: line}"
        ),
    )
    expect(choice.get_by_label("line")).to_be_checked()
    paste(new, JOB)
    expect(choice.get_by_label("whole file")).to_be_checked()


def test_a_dropped_file_proposes_its_stage(new, tmp_path: Path):
    path = tmp_path / "my pairs 好.jsonl"
    path.write_bytes((ROOT / "data" / "samples" / "preference.jsonl").read_bytes())
    new.get_by_test_id("drop-file").set_input_files(path)
    expect(new.get_by_test_id("seen")).to_contain_text("78 rows")
    expect(new.locator("#f-stage input:checked")).to_have_value("dpo")
    expect(new.locator("#have input:checked")).to_have_value("preference")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("data: .*my pairs 好.jsonl"))


def test_columns_are_chosen_by_hand(new, tmp_path: Path):
    path = tmp_path / "odd.csv"
    path.write_text("q,a\n" + "\n".join(f"What is {n}?,It is {n}." for n in range(20)) + "\n", "utf-8")
    new.get_by_test_id("drop-file").set_input_files(path)
    columns = new.get_by_test_id("columns")
    expect(columns).to_be_visible()
    if not columns.evaluate("one => one.open"):
        columns.locator("summary").click()
    columns.get_by_label("Prompt").select_option("a")
    new.wait_for_function("document.querySelector('[data-testid=yaml]').value.includes('prompt: a')")


def test_a_draft_outlives_a_reload(new):
    paste(new, JOB)
    field(new, "train-epochs").fill("7")
    new.wait_for_function("document.querySelector('[data-testid=yaml]').value.includes('epochs: 7')")
    new.reload(wait_until="commit")
    started(new)
    expect(field(new, "train-epochs")).to_have_value("7")
    expect(new.get_by_test_id("yaml")).to_have_value(re.compile("epochs: 7"))
    before = text_of(new)
    new.get_by_test_id("start-over").click()
    expect(new.get_by_test_id("yaml")).to_have_value("")
    new.get_by_role("button", name="Undo").click()
    expect(new.get_by_test_id("yaml")).to_have_value(before)


def test_start_means_the_text_as_it_stands_applied_or_not(new):
    paste(new, JOB)
    new.get_by_test_id("yaml").fill(JOB + "train: {seed: -1}\n")
    new.get_by_test_id("start").click()
    expect(new.locator("#f-train-seed .told")).to_contain_text("Must be a whole number")
    assert new.url.endswith("/new")


def test_a_recipe_can_be_in_the_address(board, tab):
    page = tab(board, "/new?preset=quickstart")
    expect(page.get_by_test_id("yaml")).to_have_value(re.compile("name: quickstart"))
    expect(page).to_have_url(board.url("/new"))


def test_two_windows_of_one_draft_start_one_run_and_its_job_is_as_written(board, new):
    text = "# kept\n" + JOB + "name: twice\ntrain: {max_steps: 1}\n"
    paste(new, text)
    expect(new.get_by_test_id("verdict")).to_have_text("Ready to start")
    twin = new.context.new_page()
    twin.goto(board.url("/new"), wait_until="commit")
    started(twin)
    expect(twin.get_by_test_id("verdict")).to_have_text("Ready to start")
    new.keyboard.press("Control+Enter")
    new.wait_for_url(re.compile(r"/run\?id="))
    twin.get_by_test_id("start").click()
    twin.wait_for_url(re.compile(r"/run\?id="))
    assert new.url == twin.url
    runs = list((board.home / "runs").iterdir())
    assert len(runs) == 1
    assert (runs[0] / "job.yaml").read_text("utf-8") == text
    control.stop(Run(runs[0]), now=True)  # nobody waits for what it learns
    over(Run(runs[0]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["empty", "wrong", "rewards"])
def test_the_page_is_accessible(board, tab, scheme, state):
    page = tab(board, "/new", color_scheme=scheme)
    if state == "wrong":
        paste(page, JOB + "train: {learning_rate: 5, seed: -1}\nodd: 1\n")
        page.get_by_test_id("more").click()
        expect(page.locator("#f-train-seed .told")).to_be_visible()
        expect(page.get_by_test_id("verdict")).to_have_text("3 things to fix")
    if state == "rewards":
        recipe(page, "grpo-cpu")
        expect(page.locator("#rewards-card")).to_be_visible()
        expect(page.get_by_test_id("forecast")).to_contain_text("Weights that move")
    filled(page)
    shot(calm(page), f"new_{state}_{scheme}")
    assert violations(page) == []


def test_start_stays_in_sight_while_the_form_scrolls(board, tab):
    page = tab(board, "/new?preset=quickstart")
    expect(page.get_by_test_id("forecast")).to_contain_text("Weights that move")
    page.evaluate("window.scrollTo(0, 700)")
    expect(page.get_by_test_id("start")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_a_phone_scrolls_in_one_direction_only(board, tab, language):
    page = tab(board, "/new?preset=grpo-cpu", viewport=PHONE, locale=language, color_scheme="dark")
    expect(page.locator("#rewards-card")).to_be_visible()
    page.get_by_test_id("more").click()
    no_wider(page, PHONE["width"])
    shot(page, f"new_phone_{language}")


def test_the_page_speaks_chinese(board, tab, watcher):
    watcher.allow("status of 422")  # a file that is not there is not looked into
    page = tab(board, "/new")
    page.get_by_test_id("language").select_option("zh")
    expect(page.get_by_role("heading", level=1)).to_have_text("新建运行")
    expect(page.get_by_label("学习率", exact=True)).to_be_visible()
    expect(page.get_by_role("radio", name=re.compile("^对话"))).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    paste(page, JOB + "train: {learning_rate: 0, epochs: x}\n")
    expect(page.locator("#f-train-epochs .told")).to_contain_text("取值应为")
    paste(page, JOB.replace("persona", "nowhere") + "train: {learning_rate: 0}\n")
    expect(page.locator("#f-train-learning_rate .told")).to_contain_text("学习率为 0 时什么也学不到")
    expect(page.locator("#f-data .told")).to_contain_text("没有这个数据文件")
    paste(page, JOB + "train: [")
    expect(page.get_by_test_id("yaml-wrong")).to_contain_text("读不了")
