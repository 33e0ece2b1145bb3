"""The word that makes something of a run for others: export."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, home_of, say, say_json, table
from data.userpath import user_path
from data.words import byte_size

if TYPE_CHECKING:
    import subprocess

    from core.runs.exports import Export
    from core.runs.folder import Run

Target = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="TARGET", help="adapter, merged, gguf, ollama, hub or card.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(export)


def export(
    context: typer.Context,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A run, by its id or part of it.", show_default=False)
    ],
    to: Target = None,
    checkpoint: Annotated[
        int | None, typer.Option(min=1, help="Take the checkpoint of this step, not the finished model.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="merged, hub: fp32, bf16 or fp16; else that of the base.")
    ] = None,
    shard_size: Annotated[float | None, typer.Option(help="merged: largest weights file in GB.")] = None,
    quant: Annotated[
        str | None, typer.Option(help="gguf, ollama, hub: f16, q8_0, or a k-quant such as q4_k_m.")
    ] = None,
    repo: Annotated[str | None, typer.Option(help="hub: org/name; without it, a dry run.")] = None,
    content: Annotated[str | None, typer.Option(help="hub: merged, adapter or gguf.")] = None,
    public: Annotated[bool, typer.Option("--public", help="hub: a new repository is for everybody.")] = False,
    out: Annotated[Path | None, typer.Option(help="Another place than the run's exports folder.")] = None,
    base: Annotated[str | None, typer.Option(help="Where the base of an adapter is now.")] = None,
    json: AsJson = False,
) -> None:
    """Make a run's model usable elsewhere, verified by whoever will read it.

    Without --to, lists the exports a run has. Ctrl-C takes an export back.

    Example: factory export k3f9 --to gguf --quant q8_0
    """
    from core.job.exports import checked_export
    from core.runs.exports import start

    run = _run(context, id)
    if to is None:
        _show_exports(run, as_json=json)
        return
    values = {
        "name": to,
        "checkpoint": checkpoint,
        "dtype": dtype,
        "shard_size": shard_size,
        "quant": quant,
        "repo": repo,
        "content": content,
        "private": False if public else None,
    }
    given = {key: value for key, value in values.items() if value is not None}
    spec = checked_export(given).model_dump(mode="json")
    _refuse_early(run, spec)
    begun, child = start(run, spec, out=user_path(out).absolute() if out else None, base=_place(base))
    ended = _follow(begun, child, quiet=json)
    if json:
        say_json(ended.to_json())
    else:
        _show_end(ended)
    raise typer.Exit(0 if ended.state == "done" else 2 if child.returncode == 2 else 1)


def _place(base: str | None) -> str | None:
    """A folder by its whole path, as the export runs elsewhere; a hub id as it is."""
    return str(user_path(base).absolute()) if base and user_path(base).exists() else base


def _run(context: typer.Context, id: str) -> Run:
    from core.runs.folder import find_run
    from core.runs.home import check_home

    home = home_of(context)
    check_home(home)
    return find_run(home, id)


def _refuse_early(run: Run, spec: dict[str, Any]) -> None:
    """Refuse what this run cannot become before a process is started for it."""
    from core.job.exports import checked_export, refusals
    from core.job.spec import JobSpec
    from data.errors import FactoryError, refuse

    try:
        job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    except (OSError, ValueError) as error:
        text = f"job.json of run {run.id} is missing or damaged, so nothing can be exported from it."
        raise refuse("job_damaged", text, value=run.id) from error
    if found := refusals(job, checked_export(spec)):
        raise FactoryError(found)


def _follow(begun: Export, child: subprocess.Popen[bytes], *, quiet: bool) -> Export:
    """Wait for an export and tell its phases; Ctrl-C cancels it."""
    from core.cli.follow import Screen
    from core.runs.exports import cancel, find_export

    screen = Screen(err=True)
    told = ""
    try:
        while child.poll() is None:
            now = find_export(begun.run, begun.name)
            phase = str(now.record.get("phase") or "") if now else ""
            screen.show(f"{begun.name}: {phase}", now.record.get("share") if now else None)
            if not screen.live and not quiet and phase not in ("", told, "starting"):
                screen.line(phase)
                told = phase
            time.sleep(0.1)
    except KeyboardInterrupt:
        now = find_export(begun.run, begun.name)
        if now is not None and not now.over:
            cancel(now)
        child.wait()
    finally:
        screen.close()
    return find_export(begun.run, begun.name) or begun


def _show_end(ended: Export) -> None:
    if ended.state == "cancelled":
        say(f"Export {ended.name} was taken back; nothing of it is left.", err=True)
    elif ended.error is not None:
        from core.cli.show import show_findings
        from data.errors import Finding

        show_findings([Finding(ended.error["code"], ended.error["message"])], err=True)
        say(f"Its output: {ended.log}", err=True)
    else:
        say(f"{ended.path}  ({byte_size(ended.record.get('bytes') or 0)})")
        lines = [("verified", text) for text in ended.record.get("verified_by") or []]
        lines += [("note", text) for text in ended.record.get("notes") or []]
        say(table(lines))


def _show_exports(run: Run, *, as_json: bool) -> None:
    from core.runs.exports import list_exports

    found = list_exports(run)
    if as_json:
        say_json([one.to_json() for one in found])
        return
    if not found:
        say(f"Run {run.id} has no exports yet. Make one: factory export {run.id} --to merged")
        return
    rows = [
        (
            one.name,
            one.state,
            byte_size(one.record["bytes"]) if one.record.get("bytes") else None,
            str(one.path) if one.path else (one.error or {}).get("message", one.record.get("phase")),
        )
        for one in found
    ]
    say(table(rows, header=("EXPORT", "STATE", "SIZE", "WHERE")))
