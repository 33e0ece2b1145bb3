"""The words that make a run go: train and resume. They follow a run, but they do not own it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.show import AsJson, ForceHome, Overrides, home_of, say, say_json_line, show_findings

Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Return at once; the run goes on in the background.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        metavar="FIELD=VALUE",
        help="Change how long it goes on (train.epochs, train.max_steps), or what is logged, evaluated and kept.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(train)
    app.command()(resume)


def train(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job as YAML or JSON.", show_default=False)],
    override: Overrides = None,
    detach: Detach = False,
    json: AsJson = False,
    force_home: ForceHome = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Start although the forecast says that memory will not do.")
    ] = False,
) -> None:
    """Train a job and follow it.

    The run waits for a free device and goes on when the terminal is closed; Ctrl-C asks whether to stop it.
    The job.json of a run's folder repeats that run.

    Example: factory train job.yaml -o train.epochs=2
    """
    from core.job.checks import check, insisted, refuse_errors
    from core.job.load import load_job, read_job_file
    from core.job.machine import this_machine
    from core.job.places import absolute
    from core.job.plan import make_plan
    from core.runs import control

    home, machine = home_of(context), this_machine()
    text = read_job_file(job)
    asked = absolute(load_job(job, override or []), job.parent)
    findings = check(asked, machine, home)
    refuse_errors(insisted(findings) if anyway else findings)
    show_findings([one for one in findings if one.code != "data_sampled"], err=True)
    plan = make_plan(asked, home, machine).model_dump(mode="json")
    run = control.submit(home, text, plan["job"], plan, force_home=force_home)
    _go_along(run, 0, detach=detach, as_json=json)


def resume(
    context: typer.Context,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A run, by its id or part of it.", show_default=False)
    ],
    override: Changes = None,
    detach: Detach = False,
    json: AsJson = False,
    force_home: ForceHome = False,
) -> None:
    """Go on with a stopped, failed or lost run, or train a finished one longer.

    It goes on from its newest whole checkpoint, with the settings it had, as the next attempt of the same run.

    Example: factory resume k3f9 -o train.epochs=2
    """
    from core.runs import control
    from core.runs.folder import find_run
    from core.runs.home import check_home

    home = home_of(context)
    check_home(home)
    run = find_run(home, id)
    offset = run.events.stat().st_size if run.events.exists() else 0
    control.resume(run, override or [], force_home=force_home)
    _go_along(run, offset, detach=detach, as_json=json)


def _go_along(run: Any, offset: int, *, detach: bool, as_json: bool) -> None:
    """Follow a run that was just submitted, and end with its outcome."""
    from core.runs.states import read_status

    if detach:
        say_json_line(outcome(read_status(run))) if as_json else say(run.id)
        return
    from core.cli.follow import closing_words, exit_code, watch

    say(f"Run {run.id}", err=as_json)
    follower, status = watch(run, offset=offset, err=as_json)
    if as_json:
        say_json_line(outcome(status))
    elif status.over:
        say(closing_words(run, status, follower.samples))
    raise typer.Exit(exit_code(status))


def outcome(status: Any) -> dict[str, Any]:
    """The line that `--json` ends with."""
    run = status.run
    done = status.state == "succeeded"
    values = status.record.get("values") or {}
    return {
        "id": run.id,
        "state": status.state,
        "path": str(run.path),
        "model": str(run.model) if done else None,
        "loss": values.get("loss") if done else None,
        "exports": status.record.get("exports") or [],
        "reason": status.reason,
    }
