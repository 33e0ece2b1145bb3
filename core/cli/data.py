"""The words about data files: inspect, rows, preview, formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, coloured, home_of, pairs, say, say_json, say_json_line, show_findings, table

if TYPE_CHECKING:
    from data.errors import Finding

Source = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, folder, glob or hub:org/name.", show_default=False)
]
Stage = Annotated[str | None, typer.Option(help="What kind of training the rows are for.")]
Model = Annotated[str | None, typer.Option(help="Model whose tokenizer and template are used.")]
Template = Annotated[
    str | None, typer.Option(help="Chat template, by name or file, instead of the model's own.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--override", metavar="FIELD=VALUE", help="A data setting (columns.prompt=frage); repeatable."
    ),
]
MaxLength = Annotated[int, typer.Option(min=8, help="Longest sequence, in tokens.")]
Count = Annotated[int, typer.Option("-n", min=1, max=1000, help="How many rows.")]


def register(app: typer.Typer) -> None:
    """Add this family's commands, under the word data."""
    data = typer.Typer(
        help="Look at data files before training on them.", rich_markup_mode=None, no_args_is_help=True
    )
    data.command()(inspect)
    data.command()(rows)
    data.command()(preview)
    data.command()(formats)
    app.add_typer(data, name="data")


def inspect(
    context: typer.Context,
    source: Source,
    stage: Stage = None,
    model: Model = None,
    template: Template = None,
    max_length: MaxLength = 2048,
    override: Settings = None,
    json: AsJson = False,
) -> None:
    """Tell what a file holds: format, columns, rows kept and dropped, lengths, stages it fits.

    With --model lengths are tokens and cut rows are counted; without, lengths are characters.

    Example: factory data inspect chats.jsonl --stage sft --model smollm2-135m
    """
    needs = _needs(stage)
    settings = _settings(source, override or [])
    if model is None:
        from data.inspect import inspect as look

        report = look(settings, needs, stage)
    else:
        from core.job.counting import ask_tokenizer

        request = {"do": "inspect", "data": settings, "stage": stage, "max_length": max_length}
        report = ask_tokenizer(request, home_of(context), model, template)
    if json:
        say_json(report)
        return
    _show_report(report, source)


def rows(
    source: Source,
    stage: Stage = None,
    count: Count = 3,
    override: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the first rows as every stage speaks of them, one JSON object a line with --json.

    Example: factory data rows chats.csv --stage dpo -n 3 --json
    """
    from data.inspect import rows as read

    for number, row in enumerate(read(_settings(source, override or []), _needs(stage), stage, count), 1):
        if json:
            say_json_line(row)
        else:
            say(f"row {number}")
            say("\n".join(f"  {line}" for line in _row_lines(row)))


TRAIN_ON = ("assistant", "last_assistant", "all")


def preview(
    context: typer.Context,
    source: Source,
    model: Annotated[str, typer.Option(help="Model whose tokenizer and template are used.")],
    stage: Annotated[str, typer.Option(help="What kind of training the rows are for.")] = "sft",
    count: Count = 3,
    template: Template = None,
    max_length: MaxLength = 2048,
    train_on: Annotated[str, typer.Option(help="assistant, last_assistant or all.")] = "assistant",
    override: Settings = None,
    json: AsJson = False,
) -> None:
    """Show every token of the first rows and whether it is learnt, exactly as the trainer gets them.

    Example: factory data preview chats.jsonl --model smollm2-135m -n 2
    """
    from data.errors import refuse

    _needs(stage)
    if train_on not in TRAIN_ON:
        raise refuse(
            "train_on_unknown",
            f"--train-on {train_on} is none of {', '.join(TRAIN_ON)}; choose one.",
            field="stage.train_on",
            value=train_on,
        )
    request = {
        "do": "preview",
        "data": _settings(source, override or []),
        "stage": stage,
        "count": count,
        "max_length": max_length,
        "train_on": "all" if stage == "pretrain" else train_on,
    }
    from core.job.counting import ask_tokenizer

    shown = ask_tokenizer(request, home_of(context), model, template)
    if json:
        say_json(shown)
        return
    show_preview(shown)


def show_preview(shown: dict[str, Any]) -> None:
    """Every token of the rows of a preview in the colour of its mask, reference answers, and what was found."""
    for number, row in enumerate(shown["rows"], 1):
        for sequence in row["sequences"]:
            _show_sequence(sequence, f"row {number}, line {row['line']}", len(row["sequences"]) > 1)
        if "prompt" in row["row"] and row["row"].get("answer") is not None:
            say(f"reference answer: {_visible(str(row['row']['answer']))}")
            say()
    say(
        f"{_painted('learnt', 'learnt')}  {_painted('read, not learnt', 'read')}  {_painted('cut', 'cut')}  padding ·"
    )
    show_findings(_findings(shown))


def formats(json: AsJson = False) -> None:
    """List the formats that are recognised."""
    from data.formats import FORMATS

    if json:
        say_json([{"name": one.NAME, "about": one.ABOUT, "gives": list(one.GIVES)} for one in FORMATS])
        return
    say(table([(one.NAME, one.ABOUT) for one in FORMATS]))


def _needs(stage: str | None) -> tuple[str, ...]:
    from data.detect import STAGE_NEEDS
    from data.errors import refuse

    if stage is None:
        return ()
    if stage not in STAGE_NEEDS:
        known = ", ".join(STAGE_NEEDS)
        raise refuse(
            "stage_unknown", f"There is no stage {stage}: name one of {known}.", field="stage", value=stage
        )
    return STAGE_NEEDS[stage]


def _settings(source: str, overrides: list[str]) -> dict[str, Any]:
    """The checked data settings of a command: the file, and `-o field=value` as in a job's data part."""
    import json

    from core.job.load import parse_job
    from core.job.places import absolute

    job = {"model": "smollm2-135m", "stage": "sft", "data": {"path": source}}
    checked = parse_job(json.dumps(job), [f"data.{override}" for override in overrides], origin=source)
    return absolute(checked).data.model_dump(mode="json")


def _findings(report: dict[str, Any]) -> list[Finding]:
    from data.errors import Finding

    return [Finding(**{**one, "params": one["params"] or {}}) for one in report["findings"]]


def _show_report(report: dict[str, Any], source: str) -> None:
    lengths = report["lengths"]
    kept = f"{report['kept']:,} of {report['read']:,}"
    dropped = report["read"] - report["kept"]
    columns = ", ".join(f"{word} = {name}" for word, name in report["columns"].items())
    facts = {
        "data": source,
        "format": f"{report['format']} ({report['sure']:.0%} sure: {report['why']})",
        "columns": columns,
        "rows kept": kept + (f" ({dropped:,} dropped)" if dropped else ""),
        "duplicates": f"{report['duplicates']:,}",
    }
    if report["labels"]:
        facts["labels"] = ", ".join(f"{count:,} {word}" for word, count in report["labels"].items())
    if lengths["count"]:
        facts["length"] = (
            f"median {lengths['median']:,}, 99 % up to {lengths['p99']:,}, "
            f"longest {lengths['longest']:,} {lengths['unit']}"
        )
    if lengths.get("over_max_length"):
        facts["too long"] = f"{lengths['over_max_length']:,} rows over max_length {lengths['max_length']:,}"
    facts["fits stages"] = (
        ", ".join(name for name, fits in report["stages"].items() if fits is True) or "none"
    )
    say(pairs(facts))
    if lengths["count"]:
        say()
        say(_histogram(lengths))
    findings = _findings(report)
    if findings:
        say()
        show_findings(findings)


def _histogram(lengths: dict[str, Any]) -> str:
    """Bars of row counts over lengths that double, without the empty ends."""
    bins = lengths["bins"]
    filled = [at for at, (_, _, count) in enumerate(bins) if count]
    shown = bins[filled[0] : filled[-1] + 1]
    most = max(count for _, _, count in shown)
    rows = [
        (
            f"{low:,}-{high:,}" if high > low else f"{low:,}",
            f"{count:,}",
            "█" * max(count and 1, round(40 * count / most)),
        )
        for low, high, count in shown
    ]
    return table(rows, header=(lengths["unit"], "rows", ""), right=(0, 1))


def _row_lines(row: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
            lines.append(key)
            lines += [f"  {turn['role']}: {_one_line(turn)}" for turn in value]
        else:
            lines.append(f"{key}: {value}")
    return lines


def _one_line(turn: dict[str, Any]) -> str:
    said = turn["content"].replace("\n", "\\n")
    calls = [
        f"{call['function']['name']}({call['function']['arguments']})" for call in turn.get("tool_calls", [])
    ]
    return " ".join([said, *calls]).strip()


_PAINT = {"learnt": typer.colors.GREEN, "read": typer.colors.BRIGHT_BLACK, "cut": typer.colors.RED}


def _painted(text: str, mask: str) -> str:
    return coloured(text, _PAINT[mask]) if mask in _PAINT else text


def _show_sequence(sequence: dict[str, Any], where: str, named: bool) -> None:
    """The tokens in the colour of their mask; where colours are off, learnt ones stand in ⟦brackets⟧."""
    tokens = [token for token in sequence["tokens"] if token["mask"] != "padding"]
    learnt = sum(token["mask"] == "learnt" for token in tokens)
    name = f"{sequence['name']}, " if named else ""
    say(f"{where}: {name}{sequence['length']:,} tokens, {learnt:,} learnt")
    plain = coloured("x", typer.colors.GREEN) == "x"
    shown, before = [], "read"
    for token in tokens:
        mask = token["mask"]
        if plain and mask != before and "learnt" in (mask, before):
            shown.append("⟦" if mask == "learnt" else "⟧")
        shown.append(_painted(_visible(token["text"]), mask))
        before = mask
    if plain and before == "learnt":
        shown.append("⟧")
    padding = len(sequence["tokens"]) - len(tokens)
    say("".join(shown) + (f" ·×{padding}" if padding else ""))
    say()


def _visible(text: str) -> str:
    """Control characters are shown as pictures, so that nothing in a file can steer the terminal."""
    return "".join(
        chr(0x2400 + ord(c)) if ord(c) < 32 and c != "\n" else "␡" if c == "\x7f" else c for c in text
    )
