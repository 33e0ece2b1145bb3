"""Docs that cannot rot: made from the code, every command real, every recipe a job that would run."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from core.cli import build_app, main
from core.job.checks import check
from core.job.load import load_job, parse_job
from core.job.machine import Gpu, Machine, installed, this_machine
from core.job.plan import make_plan
from core.job.schema import all_fields
from core.stages import stage_module
from docs import generate

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
RECIPES = sorted((ROOT / "templates" / "jobs").rglob("*.y*ml"))
EXECUTED = ("new", "check", "plan", "runs", "schema", "env")
"""Words that a test can run for real in no time; the others are parsed, and run in tests/cpu and tests/faults."""


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language in a Markdown text."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[tuple[list[str], bool]]:
    """Every command of a text as its words, and whether it is complete: in prose, a word alone may stand for it."""
    shell = [line.partition(" #")[0] for block in blocks(text, "sh") for line in block.splitlines()]
    prose = re.findall(
        r"`((?:factory|python launch\.py) [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    )
    found = [(line, True) for line in shell] + [(line, False) for line in prose]
    return [(shlex.split(line), whole) for line, whole in found if line.strip()]


def parse(words: list[str], *, whole: bool) -> None:
    """Parse a command without running it; typer raises on a word or an option that does not exist."""
    command: Any = typer.main.get_command(build_app())
    context = command.make_context("factory", list(words), resilient_parsing=not words)
    while words and hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context, resilient_parsing=not whole)


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_a_generated_page_is_as_the_code_says(path):
    assert path.read_text("utf-8") == generate.pages()[path], "run: python -m docs.generate"


def test_the_pages_name_every_field_and_every_command():
    job, cli = generate.job_page(), generate.cli_page()
    missing = [name for name in all_fields() if f"`{name.rsplit('.', 1)[-1]}`" not in job]
    assert set(missing) <= {"schema_version", "stage.name", "method.name", "engine.name", "launcher.name"}
    assert all(
        f"## {' '.join(['factory', *words])}\n" in cli for words in generate.command_words(build_app())
    )


def test_the_readme_table_has_every_stage_and_method():
    table = generate.works_table()
    for module in (*generate.STAGES, *generate.METHODS):
        assert module.Spec.model_fields["name"].default in table
    assert table in README


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/forecast.md",
        "docs/export.md",
        "docs/chat.md",
        "docs/scaling.md",
    ],
)
def test_every_command_of_a_page_is_real(page):
    for words, whole in commands((ROOT / page).read_text("utf-8")):
        if words[:2] == ["python", "-m"]:
            assert (ROOT / (words[2].replace(".", "/") + ".py")).is_file(), words
        elif words[0] in ("factory", "python"):
            rest = words[1:] if words[0] == "factory" else words[2:]
            assert words[0] == "factory" or (ROOT / words[1]).is_file(), words
            if rest[:1] not in (["test"], ["WORDS"]):  # launch.py's own word, and the placeholder
                parse(rest, whole=whole)
        else:
            assert (ROOT / words[0]).is_file(), words


def test_a_command_that_is_not_real_would_be_found():
    assert len(commands(README)) >= 10
    for words in (["trian", "x"], ["check", "x", "--jsno"], ["check"]):
        with pytest.raises(Exception, match="(?i)no such|missing"):
            parse(words, whole=True)


def test_the_readme_is_run_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = []
    for words in (shlex.split(line) for block in blocks(README, "sh") for line in block.splitlines()):
        if words[0] == "factory" and words[1] in EXECUTED:
            quick = ["--quick"] if words[1] == "plan" else []  # counting is a test of its own, in tests/cpu
            assert main([*words[1:], *quick]) == 0, (words, capsys.readouterr())
            ran.append(words[1])
    assert ran == ["new", "check", "plan", "runs"]


def test_jobs_in_the_docs_are_jobs():
    pages = [README, *(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]
    found = [text for page in pages for text in blocks(page, "yaml") if "stage:" in text]
    assert len(found) >= 5
    for text in found:
        job = parse_job(text)
        rewarded = getattr(stage_module(job.stage.name), "REWARDED", False)
        assert rewarded or not job.rewards, f"rewards in a stage that asks none: {text}"


def test_every_path_in_the_readme_is_there():
    tree = [line.split()[0] for block in blocks(README, "text") for line in block.splitlines()]
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(tree) > 10
    assert [name for name in [*tree, *links] if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_plans_and_would_run(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)  # a recipe for a GPU may name a model of the hub
    job, machine = load_job(recipe), this_machine()
    assert make_plan(job, tmp_path, machine, beside=recipe.parent).argv
    assert [one.message for one in check(job, machine, tmp_path) if one.level == "error"] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_begins_with_what_it_teaches_what_it_needs_and_how_to_run_it(recipe):
    head = []
    for line in recipe.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        head.append(line)
    text = "\n".join(head)
    assert len(head) >= 3 and "Needs:" in text
    assert f"python launch.py train {recipe.relative_to(ROOT)}" in text


def test_there_are_recipes():
    assert RECIPES


def test_an_option_that_must_be_given_stands_in_the_readme():
    """A command named in prose must be complete when its option is required: it is what people type."""
    previews = [words for words, _ in commands(README) if words[1:3] == ["data", "preview"]]
    assert previews and all("--model" in words for words in previews)


def test_no_sentence_names_a_command_that_is_not_there():
    """Advice in errors, warnings and help: each `factory WORD` in the source is a word of the command line."""
    later = {"chat", "board", "serve"}  # offered only once their module is there
    words = {
        word
        for part in ("core", "data")
        for path in (ROOT / part).rglob("*.py")
        for word in re.findall(r"\bfactory (?!import\b)([a-z]+)", path.read_text("utf-8"))
    }
    known = set(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]
    assert len(words & known) > 8
    assert words - known - later == set()


SCALING = (ROOT / "docs" / "scaling.md").read_text("utf-8")
HERE = Machine("Linux", "3.11", cores=2, memory=2**35, memory_free=2**35)
THERE = dataclasses.replace(
    HERE, cores=64, gpus=tuple(Gpu(number, "H200", 2**37, 2**37, 9.0, "550") for number in range(8))
)


def steps() -> list[tuple[str, bool, list[str]]]:
    """The training commands of docs/scaling.md: the section, whether it is called planned, the words."""
    found = []
    for section in re.split(r"^## ", SCALING, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        planned = text.lstrip().startswith("Planned")
        found += [(title, planned, words) for words, _ in commands(section) if words[1] == "train"]
    return found


@pytest.mark.parametrize(
    ("title", "planned", "words"), steps(), ids=lambda part: part if isinstance(part, str) else ""
)
def test_every_step_from_a_laptop_to_a_cluster_is_a_job_that_would_run(
    title, planned, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/bin/{name}")  # ssh, and Slurm's commands
    job = load_job(Path(words[2]), [word for word in words[3:] if word != "-o"])
    machine = THERE if planned else HERE
    missing = (
        "engine_not_installed",
        "deepspeed_missing",
        "memory_too_small",
    )  # in this Python, and for one process
    wrong = [one for one in check(job, machine, tmp_path) if one.level == "error" and one.code not in missing]
    assert [one.message for one in wrong] == []
    if not planned or installed("unsloth"):
        assert bool(make_plan(job, tmp_path, machine, beside=ROOT / "templates" / "jobs").planned) == planned


def test_the_table_of_steps_names_every_section_and_says_what_is_planned():
    table = dict(re.findall(r"^\| \[[^]]+\]\(#([^)]+)\) \|[^|]+\| ([^|]+) \|$", SCALING, re.MULTILINE))
    for title, planned, _ in steps():
        assert table[title.lower().replace(" ", "-")].startswith("planned" if planned else "run here")
