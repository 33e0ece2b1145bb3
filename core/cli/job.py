"""The words about a job before it runs: check, plan, new, schema."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, Overrides, home_of, say, say_json, show_findings

if TYPE_CHECKING:
    from core.job.plan import Plan
    from core.job.spec import JobSpec
    from data.errors import Finding

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="A job as YAML or JSON.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(new)
    app.command()(check)
    app.command()(plan)
    app.command()(schema)


def new(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write it; without, it is printed.")
    ] = None,
    stage: Annotated[str, typer.Option(help="What kind of training.")] = "sft",
    method: Annotated[str, typer.Option(help="Which weights move.")] = "lora",
    model: Annotated[str, typer.Option(help="The model to start from.")] = "smollm2-135m",
    data: Annotated[str, typer.Option(help="The file with the rows.")] = "rows.jsonl",
) -> None:
    """Write a job with every setting explained.

    The smallest job is complete; every other setting is there with its default, commented out.

    Example: factory new job.yaml --stage sft --data my-chats.jsonl
    """
    from core.job.new import new_job
    from data.errors import refuse

    text = new_job(stage, method, model, data)
    if file is None:
        say(text.rstrip("\n"))
        return
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise refuse("file_exists", f"{file} exists already; give another name.", value=str(file)) from None
    except OSError as error:
        raise refuse(
            "file_not_written", f"{file} cannot be written: {error.strerror}.", value=str(file)
        ) from error
    say(f"Wrote {file}. Next: factory check {shlex.quote(str(file))}")


def check(
    context: typer.Context,
    job: JobFile,
    override: Overrides = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the fixes to the file, comments kept, and show them.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Look at all rows, not only the first 200.")] = False,
    json: AsJson = False,
) -> None:
    """Tell everything that is wrong with a job.

    Takes under a second and starts nothing. Exit code 2 when the job would not run.

    Example: factory check job.yaml -o train.learning_rate=1e-4
    """
    if fix:
        _apply_fixes(context, job, override or [], full=full, quiet=json)
    findings = _all_findings(context, job, override or [], full=full)
    errors = sum(one.level == "error" for one in findings)
    if json:
        say_json({"ok": not errors, "findings": [one.to_json() for one in findings]})
    else:
        show_findings(findings)
        say(_verdict(job, errors, len(findings) - errors))
    raise typer.Exit(2 if errors else 0)


def _apply_fixes(
    context: typer.Context, path: Path, overrides: list[str], *, full: bool, quiet: bool
) -> None:
    """Change the job file by every fix there is, round by round, and show what changed as a diff."""
    from difflib import unified_diff

    from core.job.edit import edited
    from core.job.fixes import FIX_ROUNDS, fixes
    from core.job.load import read_job_file

    before = text = read_job_file(path)
    given = {override.partition("=")[0].strip() for override in overrides}
    done: set[str] = set()
    for _ in range(FIX_ROUNDS):
        wanted = fixes(_all_findings(context, path, overrides, full=full), given | done)
        if not wanted:
            break
        text = edited(text, wanted, is_json=path.suffix.lower() == ".json")
        _write_over(path, text)
        done |= set(wanted)
    lines = unified_diff(
        before.splitlines(), text.splitlines(), str(path), f"{path} (fixed)", lineterm="", n=1
    )
    if not quiet:
        say("\n".join(lines) if text != before else "Nothing that a change of the job would fix.")


def _write_over(path: Path, text: str) -> None:
    """Replace a file whole or not at all, its permissions kept."""
    from data.errors import refuse

    path = path.resolve()  # a link stays a link
    temporary = path.with_name(f".{path.name}.fixed")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise refuse(
            "file_not_written", f"{path} cannot be written: {error.strerror}.", value=str(path)
        ) from error


def _all_findings(
    context: typer.Context, path: Path, overrides: list[str], *, full: bool = False
) -> list[Finding]:
    """What is wrong with the text, and with as much of the job as the text gives."""
    from core.job.fixes import all_findings
    from core.job.load import read_job_file
    from core.job.machine import this_machine
    from core.job.places import absolute
    from data.errors import FactoryError

    try:
        text = read_job_file(path)
    except FactoryError as error:
        return list(error.findings)
    home, machine = home_of(context), this_machine()
    return all_findings(
        text,
        machine,
        home,
        lambda job: absolute(job, path.parent),
        overrides=overrides,
        origin=path.name,
        full=full,
    )


def _verdict(job: Path, errors: int, others: int) -> str:
    if not errors:
        return f"ok  {job} can run." if not others else f"ok  {job} can run; read the lines above first."
    return f"{errors} {'error' if errors == 1 else 'errors'}: {job} would not run."


def plan(
    context: typer.Context,
    job: JobFile,
    override: Overrides = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not count rows, tokens and steps.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure memory and time with two real steps on the longest rows.")
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the first rows as the model will see them.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show what a job would do, down to the command.

    Every setting is there, defaults marked, and the data is counted with the model's own tokenizer. What counting
    prepares is kept, so that the run then starts at once. Trains nothing. Exit code 2 when the job would not run, with
    everything that is wrong, as `factory check` tells it.

    Example: factory plan job.yaml --json
    """
    from core.cli.plan import plan_text
    from core.job.checks import insisted, refuse_errors
    from core.job.counting import probed, told_with
    from core.job.load import load_job
    from data.errors import FactoryError

    home, findings = home_of(context), _all_findings(context, job, override or [])
    possible = not any(one.level == "error" for one in insisted(findings))
    try:
        made = _made(load_job(job, override or []), home, job.parent, quick=quick or not possible)
        shown = _preview(context, made) if preview else None
    except FactoryError as error:
        raise (error if possible else FactoryError(findings)) from None
    if probe and possible:
        say("Two real steps on the longest rows ...", err=True)
        made = probed(made, home)
    findings = told_with(findings, made)
    if json:
        ok = not any(one.level == "error" for one in findings)
        told = {"ok": ok, "findings": [one.to_json() for one in findings]}
        say_json(told | made.model_dump(mode="json") | ({"preview": shown} if shown else {}))
        raise typer.Exit(0 if ok else 2)
    say(plan_text(made, findings))
    if shown:
        from core.cli.data import show_preview

        say()
        show_preview(shown)
    refuse_errors(findings)


def _made(asked: JobSpec, home: Path, beside: Path, *, quick: bool) -> Plan:
    """The plan of a job, its rows counted unless `quick`. Raises FactoryError."""
    from core.job.case import Case
    from core.job.counting import counted_plan
    from core.job.machine import this_machine
    from core.job.models import locate
    from core.job.places import absolute
    from core.job.plan import make_plan

    asked, machine = absolute(asked, beside), this_machine()
    if not quick:
        say("Counting rows and tokens ...", err=True)
        return counted_plan(asked, home, machine)
    place = locate(asked.model.name, home, revision=asked.model.revision)
    return make_plan(asked, home, machine, lengths=Case(asked, machine, home, place).lengths)


def _preview(context: typer.Context, plan: Plan) -> dict[str, Any]:
    """The first rows, rendered and masked for the plan's own job."""
    from core.job.counting import ask_tokenizer

    job = plan.job_spec
    stage: Any = job.stage
    request = {
        "do": "preview",
        "data": job.data_settings,
        "stage": stage.name,
        "count": 3,
        "max_length": getattr(stage, "max_length", None) or stage.max_prompt_length,
        "train_on": getattr(stage, "train_on", None),
    }
    return ask_tokenizer(request, home_of(context), job.model.name, job.model.template)


def schema() -> None:
    """Print the JSON schema of a job, for editors.

    An editor completes and checks a job with it while you type. In VS Code with the YAML extension:
    factory schema > job.schema.json, then begin a job with
    "# yaml-language-server: $schema=job.schema.json".
    """
    from core.job.schema import job_schema

    say_json(job_schema())
