"""How the command line speaks: findings, tables, JSON. Answers go to stdout, notes and refusals to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from data.errors import FactoryError, Finding

Overrides = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", metavar="FIELD=VALUE", help="Change one field; may be repeated."),
]
"""The option `-o train.learning_rate=1e-4` of every command that takes a job."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
"""The option `--json` of every command that prints something worth reading by a script."""

ForceHome = Annotated[
    bool, typer.Option("--force-home", help="Accept a home on a network file system, where runs can be lost.")
]
"""The option of every command that writes into a home for the first time."""

_COLOURS = {"error": typer.colors.RED, "warning": typer.colors.YELLOW, "note": typer.colors.BLUE}
_ORDER = ("error", "warning", "note")


def home_of(context: typer.Context) -> Path:
    """The home folder of this call: --home, else $FACTORY_HOME, else ~/factory."""
    from core.runs.folder import home_folder

    return home_folder(context.obj)


def say(text: str = "", *, err: bool = False) -> None:
    """One piece of text and a newline, on stdout, or on stderr for notes."""
    typer.echo(text, err=err)


def say_json(data: Any) -> None:
    """Data as indented JSON on stdout, for scripts."""
    say(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def say_json_line(data: Any) -> None:
    """Data as one line of JSON on stdout, for scripts that read line by line."""
    say(json.dumps(data, ensure_ascii=False, default=str))


def coloured(text: str, colour: str, *, err: bool = False) -> str:
    """The text in a colour when it goes to a terminal that wants colours; otherwise as it is."""
    stream = sys.stderr if err else sys.stdout
    wanted = stream.isatty() and "NO_COLOR" not in os.environ
    return typer.style(text, fg=colour) if wanted else text


def show_findings(findings: Sequence[Finding], *, err: bool = False) -> None:
    """Every finding on a line of its own, errors first: `error  train.learning_rate  must be ...`."""
    for line in finding_lines(findings, err=err):
        say(line, err=err)


def finding_lines(findings: Sequence[Finding], *, err: bool = False) -> list[str]:
    """The lines of `show_findings`: level, field and sentence in columns."""
    in_order = sorted(findings, key=lambda one: _ORDER.index(one.level))
    levels = max((len(one.level) for one in in_order), default=0)
    fields = max((len(one.field or "") for one in in_order), default=0)
    return [
        coloured(f"{one.level:<{levels}}", _COLOURS[one.level], err=err)
        + (f"  {one.field or '':<{fields}}" if fields else "")
        + f"  {_without_field(one)}"
        for one in in_order
    ]


def _without_field(finding: Finding) -> str:
    """The sentence without the field's name in front, which stands in a column of its own already."""
    rest = finding.message.removeprefix(finding.field or "").lstrip(": ")
    return rest if finding.field and rest else finding.message


def show_refusal(error: FactoryError, *, as_json: bool) -> None:
    """A refusal, in the form of `factory check`: its sentences on stderr, or one JSON object on stdout."""
    if as_json:
        say_json({"ok": False, "findings": [one.to_json() for one in error.findings]})
    else:
        show_findings(error.findings, err=True)


def table(rows: Iterable[Sequence[Any]], header: Sequence[str] = (), right: Sequence[int] = ()) -> str:
    """Rows as aligned columns, two spaces apart; `right` lists the columns that end at the right edge."""
    cells = [[_cell(value) for value in row] for row in rows]
    if header:
        cells.insert(0, list(header))
    if not cells:
        return ""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = (
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values as two aligned columns."""
    return table(values.items())


def duration(seconds: float) -> str:
    """Seconds in words: `40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for unit, size in (("days", 86_400 * 2), ("h", 3600 * 1.5), ("min", 90)):
        if seconds >= size:
            count = seconds / {"days": 86_400, "h": 3600, "min": 60}[unit]
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{max(1, seconds):.0f} s"
