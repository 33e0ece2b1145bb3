"""Write the docs that are made from the code: python -m docs.generate. tests/unit/test_docs.py fails when it is due.

docs/job.md, docs/cli.md, docs/metrics.md, and the tables between two marks in README.md, docs/rewards.md,
docs/engines.md and docs/forecast.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from core.cli import build_app, main
from core.engines import ENGINES, unsloth
from core.export import TARGETS
from core.job.advice import TABLE
from core.job.load import check_values
from core.job.presets import resolve
from core.job.schema import Schema, allowed, alternatives, job_schema, names_of
from core.methods import METHODS
from core.rewards import REWARDS
from core.stages import STAGES
from core.training.metrics import ALWAYS, LOGGED, LOGGED_WITH, MEANING
from core.training.watchdog import PATIENCE, RULES

ROOT = Path(__file__).resolve().parents[1]
MARKS = ("<!-- works: made by docs/generate.py -->", "<!-- /works -->")
REWARD_MARKS = ("<!-- rewards: made by docs/generate.py -->", "<!-- /rewards -->")
TARGET_MARKS = ("<!-- targets: made by docs/generate.py -->", "<!-- /targets -->")
CARD_MARKS = ("<!-- cards: made by docs/generate.py -->", "<!-- /cards -->")
ENGINE_MARKS = ("<!-- engines: made by docs/generate.py -->", "<!-- /engines -->")
LIMIT_MARKS = ("<!-- limits: made by docs/generate.py -->", "<!-- /limits -->")
MADE = "<!-- Made by docs/generate.py from the code; change the code, then run: python -m docs.generate -->"


def metrics_page() -> str:
    """docs/metrics.md: what each stage logs, and what healthy looks like."""
    lines = [
        MADE,
        "# Metrics",
        "",
        "Every stage writes its numbers under the same names, whatever the trainer behind it calls them: into",
        "`events.jsonl` of the run, to the terminal, and to the trackers in `report_to`. Numbers over held-out data",
        "have `eval_` in front. The first and the last step are always written, others every `train.logging_steps`.",
        "",
        "## What each stage logs",
        "",
        f"All of them: {', '.join(f'`{name}`' for name in ALWAYS)}. Besides:",
        "",
        "| stage | metrics |",
        "|---|---|",
        *(f"| `{stage}` | {', '.join(f'`{name}`' for name in names)} |" for stage, names in LOGGED.items()),
        *(f"| {case} | {', '.join(f'`{name}`' for name in names)} |" for case, names in LOGGED_WITH.items()),
        "",
        "## What they mean, and what healthy looks like",
        "",
        "| metric | what it is | healthy |",
        "|---|---|---|",
        *(f"| `{name}` | {what} | {healthy} |" for name, (what, healthy) in MEANING.items()),
        "",
        "## What the watchdog says",
        "",
        f"A rule speaks when {PATIENCE} records in a row are bad, once, and again after the run was well in between.",
        "`train.watchdog: false` silences it. A loss or gradient that is no number ends a run at once, in any case.",
        "",
        "| rule | when | what happens |",
        "|---|---|---|",
        *(f"| `{code}` | {when} | {what} |" for code, when, what in RULES),
    ]
    return "\n".join(lines) + "\n"


def job_page() -> str:
    """docs/job.md: every field of a job, by part and kind."""
    schema = job_schema()
    lines = [
        MADE,
        "# The job",
        "",
        "A job is a YAML or JSON file that says everything about one training. Three lines are enough:",
        "",
        "```yaml",
        "model: smollm2-135m",
        "data: data/samples/persona.jsonl",
        "stage: sft",
        "```",
        "",
        "`factory new` writes one with every setting explained, `factory check` tells everything that is wrong with",
        "one, `factory plan` shows what it comes to, `factory schema` gives editors what they need to complete it.",
        "A name stands for a part's long form: `method: lora` is `method: {name: lora}`. `-o train.epochs=2` changes",
        "one field on the command line.",
        "",
        "The file is YAML 1.2: `1e-4` is a number, `no` is text. It holds plain values only: anchors, aliases, merge",
        "keys, tags, repeated keys, and numbers that are not finite are refused, and so is a file above 256 KiB,",
        "2,000 keys and values, or 20 levels. Secrets have no place in it: they are environment variables.",
        "",
        *_table(schema),
    ]
    for name, node in schema["properties"].items():
        for form in (one for one in alternatives(node) if "properties" in one):
            kind = form["properties"].get("name", {}).get("const")
            lines += ["", f"## {name}: {kind}" if kind else f"## {name}", "", form["description"], ""]
            lines += _table(form)
    return "\n".join(lines) + "\n"


def _table(form: Schema) -> list[str]:
    rows = [
        (f"`{name}`", _what(node), _default(name, node, form), " ".join(node["description"].split()))
        for name, node in form["properties"].items()
        if "const" not in node  # a kind's own name, the schema's version
    ]
    if not rows:
        return ["It has no settings of its own."]
    return ["| field | allowed | default | what it is |", "|---|---|---|---|", *map(_row, rows)]


def _what(node: Schema) -> str:
    if not names_of(node) and any("properties" in one for one in alternatives(node)):
        return "settings, below"
    return allowed(node) + (f", in {node['unit']}" if "unit" in node else "")


def _default(name: str, node: Schema, form: Schema) -> str:
    if name in form.get("required", ()):
        return "**required**"
    value = node.get("default")
    if isinstance(value, dict) or ("default" not in node and form is job_schema()):
        return f"`{_named_default(name)}`" if names_of(node) else ""
    if value is None and form.get("title") == "TrainSpec" and name in _by_preset():
        return "by preset"
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


@cache
def _by_preset() -> frozenset[str]:
    """The fields of `train` that the presets of core/job/presets.py fill."""
    job = check_values({"model": "smollm2-135m", "data": "rows.jsonl", "stage": "sft"})
    filled = resolve(job, parameters=None, gpu=False).job.train
    fields = type(job.train).model_fields
    return frozenset(
        key for key in fields if getattr(job.train, key) is None and getattr(filled, key) is not None
    )


def _named_default(name: str) -> str:
    from core.job.spec import JobSpec

    return str(JobSpec.model_fields[name].get_default(call_default_factory=True).name)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def cli_page() -> str:
    """docs/cli.md: the help of every command."""
    lines = [MADE, "# The command line", "", "Every word of `factory`, as its `--help` says it."]
    for words in ([], *command_words(build_app())):
        lines += ["", f"## {' '.join(['factory', *words])}", "", "```text", _help(words), "```"]
    return "\n".join(lines) + "\n"


def command_words(app: Any, before: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Every command of the command line as its words: ["check"], ["queue", "front"]."""
    for command in app.registered_commands:
        yield [*before, command.name or command.callback.__name__]
    for group in app.registered_groups:
        name = group.name or group.typer_instance.info.name
        yield [*before, name]
        yield from command_words(group.typer_instance, (*before, name))


def _help(words: list[str]) -> str:
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}), contextlib.redirect_stdout(out):
        main([*words, "--help"])
    return out.getvalue().strip()


def works_table() -> str:
    """README's table: which stage runs with which method, on which engine."""
    lines = [_row(("stage", "what it does", *METHODS.names)), "|" + "---|" * (2 + len(METHODS))]
    for module in STAGES:
        stage = module.Spec.model_fields["name"].default
        able = [", ".join(_engines_for(stage, method)) for method in METHODS.names]
        lines.append(_row((f"`{stage}`", _first_sentence(module.Spec.__doc__ or ""), *able)))
    return "\n".join(lines)


def _engines_for(stage: str, method: str) -> Iterator[str]:
    return (
        name
        for name, engine in zip(ENGINES.names, ENGINES, strict=True)
        if stage in engine.STAGES and method in engine.METHODS
    )


def _first_sentence(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".")


def rewards_table() -> str:
    """docs/rewards.md's table: every reward, what it asks, its scores, what it needs."""
    lines = [_row(("reward", "what it asks", "score", "columns", "the operator sets")), "|" + "---|" * 5]
    for module in REWARDS:
        spec = module.Spec.model_construct()
        columns = ", ".join(f"`{name}`" for name in spec.columns)
        operator = f"`{spec.operator}`" if spec.operator else ""
        question = " ".join((module.Spec.__doc__ or "").split())
        lines.append(_row((f"`{spec.name}`", question, spec.range, columns, operator)))
    return "\n".join(lines)


def targets_table() -> str:
    """docs/export.md's table: every target, its settings, and who verifies it."""
    lines = [_row(("target", "what it is", "settings", "verified by")), "|" + "---|" * 4]
    for module in TARGETS:
        own = [name for name in module.Spec.model_fields if name not in ("name", "checkpoint")]
        default = {name: module.Spec.model_fields[name].default for name in own}
        settings = ", ".join(
            f"`{name}` ({'none' if value is None else value})" for name, value in default.items()
        )
        about = _first_sentence(module.Spec.__doc__ or "")
        lines.append(
            _row((f"`{module.Spec.model_fields['name'].default}`", about, settings, module.VERIFIED))
        )
    return "\n".join(lines)


def cards_table() -> str:
    """docs/forecast.md's table: every error card."""
    lines = [_row(("fault", "cause", "setting", "change")), "|" + "---|" * 4]
    for code, row in TABLE.items():
        lines.append(_row((f"`{code}`", row.cause, f"`{row.setting}`" if row.setting else "", row.change)))
    return "\n".join(lines)


def engines_table() -> str:
    """docs/engines.md's table: what each engine can do and how it comes here."""
    lines = [_row(("engine", "stages", "methods", "strategies", "install")), "|" + "---|" * 5]
    for name, engine in zip(ENGINES.names, ENGINES, strict=True):
        if not engine.STAGES:
            continue  # auto stands for another one
        known = (
            ", ".join(f"`{one}`" for one in part)
            for part in (engine.STAGES, engine.METHODS, engine.STRATEGIES)
        )
        install = f"`factory env install {engine.ENVIRONMENT}`" if engine.ENVIRONMENT else "is here"
        lines.append(_row((f"`{name}`", *known, install)))
    return "\n".join(lines)


def limits_table() -> str:
    """docs/engines.md's table: what engine unsloth does not take."""
    lines = [_row(("field", "why", "instead")), "|" + "---|" * 3]
    for limit in unsloth.LIMITS:
        instead = "engine trl" if limit.fix == "trl" else f"`{json.dumps(limit.fix)}`"
        lines.append(_row((f"`{limit.field}`", limit.why, instead)))
    return "\n".join(lines)


def with_table(page: str, marks: tuple[str, str], table: str) -> str:
    """A page with the table between two marks made anew."""
    start, end = map(re.escape, marks)
    return re.sub(f"(?<={start}\n).*(?={end})", lambda _: table + "\n", page, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Every generated file with the text it should have."""
    readme, rewards = ROOT / "README.md", ROOT / "docs" / "rewards.md"
    forecast, export = ROOT / "docs" / "forecast.md", ROOT / "docs" / "export.md"
    engines = ROOT / "docs" / "engines.md"
    return {
        ROOT / "docs" / "job.md": job_page(),
        ROOT / "docs" / "cli.md": cli_page(),
        ROOT / "docs" / "metrics.md": metrics_page(),
        readme: with_table(readme.read_text("utf-8"), MARKS, works_table()),
        rewards: with_table(rewards.read_text("utf-8"), REWARD_MARKS, rewards_table()),
        export: with_table(export.read_text("utf-8"), TARGET_MARKS, targets_table()),
        engines: with_table(
            with_table(engines.read_text("utf-8"), ENGINE_MARKS, engines_table()), LIMIT_MARKS, limits_table()
        ),
        forecast: with_table(forecast.read_text("utf-8"), CARD_MARKS, cards_table()),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
