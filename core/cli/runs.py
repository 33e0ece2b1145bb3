"""The words about runs that exist: runs, logs, stop, queue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.cli.show import AsJson, home_of, pairs, say, say_json, table
from data.words import byte_size

if TYPE_CHECKING:
    from core.runs.folder import Run
    from core.runs.listing import Row

RunId = Annotated[
    str, typer.Argument(metavar="ID", help="A run, by its id or part of it.", show_default=False)
]
SHOWN = 20
"""Rows of the list for people; scripts and --all get every one."""


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    history = typer.Typer(help="List runs; describe, delete and restore them.")
    history.callback(invoke_without_command=True)(runs)
    history.command()(describe)
    history.command("pin")(pin_checkpoint)
    history.command("unpin")(unpin_checkpoint)
    history.command()(delete)
    history.command()(restore)
    app.add_typer(history, name="runs")
    app.command()(logs)
    app.command()(stop)
    line = typer.Typer(help="Show devices and the runs that wait for them.")
    line.callback(invoke_without_command=True)(queue)
    line.command()(front)
    line.command("resume")(queue_resume)
    app.add_typer(line, name="queue")


def runs(
    context: typer.Context,
    all: Annotated[
        bool, typer.Option("--all", "-a", help=f"Every run, not only the newest {SHOWN}.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List runs, newest first.

    Example: factory runs --json
    """
    if context.invoked_subcommand is not None:
        return
    from core.runs.about import read_about
    from core.runs.home import check_home
    from core.runs.listing import rows

    home = home_of(context)
    check_home(home)
    found = rows(home)[::-1]
    if json:
        say_json([{**row.to_json(), **vars(read_about(row.status.run))} for row in found])
        return
    if not found:
        say(f"No runs yet in {home}. Start one: factory train job.yaml")
        return
    shown = found if all else found[:SHOWN]
    lines = [_columns(row) for row in shown]
    say(table(lines, header=("RUN", "STAGE", "STATE", "STEP", "STARTED", "NOTE")))
    if len(shown) < len(found):
        say(f"and {len(found) - len(shown)} older ones: factory runs --all")
    _show_cards(shown)


def describe(
    context: typer.Context,
    id: RunId,
    title: Annotated[str | None, typer.Option(help="A title; an empty one takes it away.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag in place of those it has; repeatable.")] = None,
    note: Annotated[str | None, typer.Option(help="A note; an empty one takes it away.")] = None,
) -> None:
    """Give a run a title, tags or a note, or show those it has.

    Example: factory runs describe k3f9 --title "rank 64, twice the data" --tag persona
    """
    from core.runs.about import read_about, write_about

    run = _run(context, id)
    wanted = (title, tag, note)
    about = (
        read_about(run)
        if wanted == (None, None, None)
        else write_about(run, title=title, tags=tag, note=note)
    )
    say(
        pairs(
            {"title": about.title or None, "tags": ", ".join(about.tags) or None, "note": about.note or None}
        )
    )


Step = Annotated[int, typer.Argument(metavar="STEP", help="The checkpoint's step.", show_default=False)]


def pin_checkpoint(context: typer.Context, id: RunId, step: Step) -> None:
    """Keep a checkpoint for good, whatever train.keep_checkpoints says.

    Example: factory runs pin k3f9 200
    """
    from core.runs.weights import pin

    say(f"Kept: {pin(_run(context, id), step)}")


def unpin_checkpoint(context: typer.Context, id: RunId, step: Step) -> None:
    """Let a pinned checkpoint go with the older ones.

    Example: factory runs unpin k3f9 200
    """
    from core.runs.weights import pin

    pin(_run(context, id), step, pinned=False)
    say(f"Step {step} goes when newer checkpoints take its place.")


def delete(context: typer.Context, id: RunId) -> None:
    """Move a run that is over to the trash of the home.

    Example: factory runs delete k3f9
    """
    from core.runs.trash import throw_away

    thrown = throw_away(_run(context, id))
    say(f"Moved {byte_size(thrown.bytes)} to {thrown.path}. Bring it back: factory runs restore {thrown.id}")


def restore(
    context: typer.Context,
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="A deleted run, by its id or part of it; without, they are listed."
        ),
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Delete for good all that is in the trash.")] = False,
) -> None:
    """Bring a deleted run back, list deleted runs, or empty the trash.

    Example: factory runs restore 261129-120000-first-k3f9
    """
    from core.runs import trash

    home = home_of(context)
    if empty:
        say(f"Freed {byte_size(trash.empty(home))}.")
    elif id is None:
        rows = [(one.id, byte_size(one.bytes)) for one in trash.thrown(home)]
        say(
            table(rows, header=("DELETED RUN", "SIZE"), right=(1,)) if rows else f"No deleted runs in {home}."
        )
    else:
        say(f"Run {trash.put_back(home, id).id} is back.")


CARDS = 3
"""Failed runs of the list whose error card is shown."""


def _show_cards(shown: list[Row]) -> None:
    """The error cards of the newest failed, lost and stuck runs of a list."""
    cards = [(row, card) for row in shown if (card := row.card) is not None][:CARDS]
    for row, card in cards:
        say()
        say(f"{row.status.run.id}  {card.code}")
        say("\n".join(card.lines()))


def logs(
    context: typer.Context,
    id: RunId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the run as `factory train` does.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines from the end.")] = 40,
    json: Annotated[bool, typer.Option("--json", help="The run's events, one JSON object a line.")] = False,
) -> None:
    """Show a run's output, or follow it with -f.

    Example: factory logs -f k3f9
    """
    from core.cli.follow import card_lines, closing_words, exit_code, plain, watch
    from core.runs.states import read_status
    from core.runs.storage import tail

    run = _run(context, id)
    if json:
        _print_events(run, follow)
    elif follow:
        follower, status = watch(run, offset=_begin_of_attempt(run))
        if status.over:
            say(closing_words(run, status, follower.samples))
        raise typer.Exit(exit_code(status))
    else:
        try:
            text = tail(run.log, lines)
        except FileNotFoundError:
            say(f"Run {run.id} has printed nothing yet: it {read_status(run).words}.", err=True)
            return
        for line in text.split("\n") if text else ():
            say(plain(line.rsplit("\r", 1)[-1]))  # of a progress bar's many states, the last
        for line in card_lines(read_status(run)):
            say(line, err=True)


def stop(
    context: typer.Context,
    id: RunId,
    now: Annotated[bool, typer.Option("--now", help="End it at once, without saving.")] = False,
) -> None:
    """Stop a run, or cancel one that waits.

    It saves a checkpoint at the next step and ends. A second stop, or --now, ends it at once without saving.

    Example: factory stop k3f9
    """
    from core.cli.follow import countdown, plain
    from core.runs import control
    from core.runs.states import last_checkpoint, read_status

    run = _run(context, id)
    if read_status(run).orphans:
        count = control.end_orphans(run, 0.0 if now else 60.0)
        say(f"Ended {count} {'process' if count == 1 else 'processes'} that run {run.id} had left.")
        return
    control.stop(run, now=now)
    try:
        status = countdown(run)
    except KeyboardInterrupt:
        say(f"Run {run.id} goes on stopping.", err=True)
        return
    reason = f": {plain(status.reason)}" if status.reason else "."
    say(f"Run {run.id} {'is lost' if status.state == 'lost' else status.state}{reason}")
    if (checkpoint := last_checkpoint(run)) and status.state != "succeeded":
        say(f"It can go on from {checkpoint}: factory resume {run.id}")
    raise typer.Exit(1 if status.state in ("failed", "lost") else 0)


def queue(context: typer.Context, json: AsJson = False) -> None:
    """Show the devices of this machine, who uses them, and who waits.

    Example: factory queue
    """
    if context.invoked_subcommand is not None:
        return
    from core.runs.gpus import foreign_processes
    from core.runs.queue import Queue, slot_names

    line = Queue()
    holders, names = line.holders(), slot_names()
    others = foreign_processes() if any(name.startswith("gpu") for name in names) else {}
    devices = [
        {
            "slot": name,
            "run": Path(holders[name].get("run", "?")).name if name in holders else None,
            "user": holders[name].get("user") if name in holders else None,
            "others": [vars(one) for one in others.get(name, [])] if name not in holders else [],
        }
        for name in sorted({*names, *holders})
    ]
    waiting = [
        {
            "place": place,
            "run": Path(who.get("run", "?")).name,
            "user": who.get("user"),
            "wish": ticket.wish.slots,
        }
        for place, ticket in enumerate(line.line(), start=1)
        for who in [ticket.holder()]
    ]
    if json:
        say_json({"devices": devices, "waiting": waiting})
        return
    say(table([_device(one) for one in devices], header=("DEVICE", "RUN", "USER")))
    if waiting:
        say()
        rows = [(one["place"], one["run"], one["user"], " ".join(one["wish"])) for one in waiting]
        say(table(rows, header=("PLACE", "WAITING", "USER", "FOR"), right=(0,)))


def front(context: typer.Context, id: RunId) -> None:
    """Move a waiting run to the front of the queue.

    Example: factory queue front k3f9
    """
    from core.runs import control

    run = _run(context, id)
    control.to_front(run)
    say(f"Run {run.id} is next.")


def queue_resume(context: typer.Context) -> None:
    """Put back runs that waited when the machine went down.

    Example: factory queue resume
    """
    from core.runs import control
    from core.runs.listing import rows

    lost = [row.status for row in rows(home_of(context)) if row.status.state == "lost"]
    waited = [status.run for status in lost if status.record.get("state") == "queued"]
    for run in waited:
        control.resume(run, force_home=True)  # whoever queued them here accepted the home
        say(f"Run {run.id} waits again.")
    if not waited:
        say("No run lost its place in the queue.")


def _run(context: typer.Context, id: str) -> Run:
    from core.runs.folder import find_run
    from core.runs.home import check_home

    home = home_of(context)
    check_home(home)
    return find_run(home, id)


def _columns(row: Row) -> tuple[str | None, ...]:
    record, status = row.status.record, row.status
    total = record.get("total_steps")
    step = None if row.step is None else f"{row.step}/{total}" if total else str(row.step)
    started = record.get("started")
    when = time.strftime("%b %d %H:%M", time.localtime(started)) if started else None
    return status.run.id, record.get("stage"), status.state, step, when, _title(row) + _note(row)


def _title(row: Row) -> str:
    from core.cli.follow import plain
    from core.runs.about import read_about

    title = plain(read_about(row.status.run).title)
    return f"{title}  " if title and _note(row) else title


def _note(row: Row) -> str:
    from core.cli.follow import plain

    if row.place is not None:
        return f"place {row.place} in the queue"
    words = plain(row.status.reason)
    return words if len(words) <= 60 else words[:59] + "…"


def _device(one: dict[str, object]) -> tuple[object, ...]:
    if one["run"]:
        return one["slot"], one["run"], one["user"]
    others = one["others"]
    assert isinstance(others, list)
    if others:
        names = ", ".join(
            f"{other['name']} (pid {other['pid']}, {other['memory_mib']} MiB)" for other in others
        )
        return one["slot"], f"not ours: {names}", None
    return one["slot"], "free", None


def _begin_of_attempt(run: Run) -> int:
    """Where the events of the newest attempt begin."""
    from core.runs.journal import parse, read_lines

    begin, offset = 0, 0
    while True:
        lines, reached = read_lines(run.events, offset)
        for line in lines:
            if b'"queued"' in line.content and (parse(line.content) or {}).get("state") == "queued":
                begin = line.end - len(line.content) - 1
        if reached == offset:
            return begin
        offset = reached


def _print_events(run: Run, follow: bool) -> None:
    from core.runs.events import follow as events
    from core.runs.states import read_status

    for event in events(run.events, 0, lambda: not follow or read_status(run).over):
        if event is not None:
            say(event.model_dump_json())
