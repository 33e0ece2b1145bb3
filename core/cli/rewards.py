"""The words about rewards: try them on real answers before a run learns from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, Overrides, home_of, say, say_json, show_findings, table
from data.words import number

if TYPE_CHECKING:
    from core.job.spec import JobSpec
    from core.rewards.bench import Report

TOKENS = {"cpu": 48, "gpu": 256}
"""Longest sampled answer unless told otherwise: enough to see what a reward does, in a minute or two."""


def register(app: typer.Typer) -> None:
    """Add this family's commands, under the word rewards."""
    rewards = typer.Typer(
        help="Try rewards before a run learns from them.", rich_markup_mode=None, no_args_is_help=True
    )
    rewards.command("try")(try_)
    rewards.callback()(lambda: None)  # or the only command would take the group's place
    app.add_typer(rewards, name="rewards")


def try_(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job as YAML or JSON.", show_default=False)],
    rows: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many rows.")] = 8,
    answers: Annotated[int, typer.Option("-k", min=2, max=64, help="How many answers to each.")] = 4,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=8192, help="Longest answer; else the stage's, at most 48 on a CPU, 256 on a GPU."
        ),
    ] = None,
    completions: Annotated[
        Path | None,
        typer.Option(help="Score these answers instead of sampling: JSON lines of prompt and completions."),
    ] = None,
    override: Overrides = None,
    json: AsJson = False,
) -> None:
    """Score real answers with a job's rewards.

    Samples answers of the job's model and shows what every reward gives them, whether groups differ, and what looks
    wrong: no signal, one reward drowning the others, a reward that follows length or likes silence.

    Example: factory rewards try job.yaml -n 8 -k 4
    """
    from core.job.load import load_job
    from core.job.places import absolute
    from core.rewards import Setting, build_scorers
    from core.rewards.bench import bench
    from data.errors import Finding, refuse

    asked, home = absolute(load_job(job, override or []), job.parent), home_of(context)
    if not asked.rewards:
        raise refuse(
            "rewards_missing",
            "The job names no rewards; add some, such as rewards: [accuracy].",
            field="rewards",
        )
    told: list[Finding] = []
    scorers = build_scorers(asked.rewards, Setting(home, told.append))
    if completions is not None:
        found, given = _from_file(completions, asked)
    else:
        found = _rows(asked, rows)
        say(f"Sampling {len(found)} x {answers} answers of {asked.model.name} ...", err=True)
        given = _sampled(asked, home, found, answers, tokens or _longest(asked))
    report = bench(scorers, found, given)
    findings = [*told, *report.findings]
    if json:
        say_json(report.to_json() | {"findings": [one.to_json() for one in findings]})
        return
    _show(report)
    if findings:
        say()
        show_findings(findings)


def _longest(job: JobSpec) -> int:
    from core.job.machine import this_machine

    most = TOKENS["gpu" if this_machine().has_gpu else "cpu"]
    return min(most, getattr(job.stage, "max_completion_length", most))


def _rows(job: JobSpec, count: int) -> list[dict[str, Any]]:
    """The first rows of the job's data that have a prompt."""
    from data.errors import refuse
    from data.inspect import rows

    found = list(rows(job.data_settings, ("prompt",), "grpo", count))
    if not found:
        raise refuse("data_no_rows_left", "The data has no prompt to answer.", field="data.path")
    return found


def _sampled(
    job: JobSpec, home: Path, rows: list[dict[str, Any]], count: int, tokens: int
) -> list[list[str]]:
    """Answers of the job's model, by a child process."""
    import json

    from core.job.counting import ask_child

    request = {
        "job": job.model_dump(mode="json"),
        "home": str(home),
        "prompts": [row["prompt"] for row in rows],
        "answers": count,
        "tokens": tokens,
    }
    answers: list[list[str]] = json.loads(ask_child("core.training.bench", json.dumps(request)))["answers"]
    return answers


def _from_file(path: Path, job: JobSpec) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Rows and answers of a file of JSON lines: {prompt, completion or completions, any columns rewards ask for}.

    Lines with the same prompt are one group. Columns that a line lacks come from the job's row with that prompt.
    """
    import json

    from data.errors import refuse

    groups: dict[str, tuple[dict[str, Any], list[str]]] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(
            "completions_unreadable", f"{path} cannot be read ({error}).", value=str(path)
        ) from error
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            texts = record.pop("completions", None) or [record.pop("completion")]
            fits = (
                "prompt" in record and isinstance(texts, list) and all(isinstance(one, str) for one in texts)
            )
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            fits = False
        if not fits:
            raise refuse(
                "completions_line",
                f"{path} line {place} must be a JSON object with prompt and completion, or completions as a list.",
                value=line[:100],
            )
        key = json.dumps(record["prompt"], sort_keys=True)
        groups.setdefault(key, (record, []))[1].extend(texts)
    if not groups:
        raise refuse("completions_empty", f"{path} holds no answers.", value=str(path))
    fewest = min(len(texts) for _, texts in groups.values())
    known = _known(job, groups)
    rows = [{**known.get(key, {}), **record} for key, (record, _) in groups.items()]
    return rows, [texts[:fewest] for _, texts in groups.values()]


def _known(job: JobSpec, groups: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The job's own rows by prompt; none when its data cannot be read, for then the file must hold all columns."""
    import json

    from data.errors import FactoryError
    from data.inspect import rows

    try:
        found = rows(job.data_settings, ("prompt",), "grpo", max(1000, len(groups)))
        return {json.dumps(row["prompt"], sort_keys=True): row for row in found}
    except FactoryError:
        return {}


def _show(report: Report) -> None:
    plain = report.to_json()
    header = ("REWARD", "WEIGHT", "MEAN", "SPREAD", "LOWEST", "HIGHEST", "NONE", "MS")
    lines = [
        (one["name"], f"{one['weight']:g}", *(_number(one[key]) for key in ("mean", "spread", "lowest", "highest")),
         str(one["none"]), f"{one['ms']:.1f}")
        for one in plain["rewards"]
    ]  # fmt: skip
    say(table(lines, header=header, right=tuple(range(1, 8))))
    say()
    width = max(len(group["answers"]) for group in plain["groups"])
    rows = [
        (_short(group["prompt"], 40), *(_number(answer["total"]) for answer in group["answers"]),
         _number(group["mean"]), _number(group["spread"]))
        for group in plain["groups"]
    ]  # fmt: skip
    names = [f"#{number}" for number in range(1, width + 1)]
    say(table(rows, header=("PROMPT", *names, "MEAN", "SPREAD"), right=tuple(range(1, width + 3))))
    say()
    dead = round(report.signal.dead * len(report.groups))
    say(f"{dead} of {len(report.groups)} groups without any signal, mean {number(report.signal.mean)}")
    ranked = report.ranked()
    for word, one in (("best", ranked[:1]), ("worst", ranked[-1:])):
        for total, prompt, text in one:
            say(f"{word:<5}  {number(total)}  {_short(prompt, 60)} -> {_short(text, 200) or '(empty)'}")


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _short(text: str, limit: int) -> str:
    from core.cli.follow import plain

    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
