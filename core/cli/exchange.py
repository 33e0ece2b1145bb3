"""The words that bring a job in from another trainer and take one out again: import and eject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, Overrides, home_of, say, say_json, show_findings, table
from data.userpath import user_path

if TYPE_CHECKING:
    from core.job.foreign.lines import Imported
    from core.job.reading import Reading


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("import")(import_)
    app.command()(eject)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A training YAML of LLaMA-Factory.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write our job.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    json: AsJson = False,
) -> None:
    """Turn a LLaMA-Factory training YAML into a job, and report on every key of it.

    Example: factory import llama3_lora_sft.yaml -o job.yaml
    """
    from core.job.foreign.llama_data import unread_registries
    from core.job.load import parse_leniently, read_job_file
    from core.job.reader import read_text

    made, text = _imported(read_text(read_job_file(file), file.name), file)
    _, findings = parse_leniently(text, origin=str(out))
    findings += unread_registries(made.job)
    _write(out, text, force)
    lines = [line.to_json() for line in made.lines]
    if json:
        say_json({"job": str(out), "lines": lines, "findings": [one.to_json() for one in findings]})
        raise typer.Exit(1 if findings else 0)
    rows = [(one.kind, one.key, _short(one.value), one.field or "", one.words) for one in made.lines]
    say(table(rows, header=("", "KEY", "VALUE", "OUR FIELD", "WHAT IS DIFFERENT")))
    say()
    if findings:
        show_findings(findings)
        say(f"Wrote {out}, which cannot be trained as it stands: put that right, then factory check {out}")
        raise typer.Exit(1)
    say(f"Wrote {out}. Next: factory check {out}")


def _write(out: Path, text: str, force: bool) -> None:
    """Write a text to a new file, or with `force` over one that is there. Raises FactoryError."""
    from data.errors import refuse

    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        words = f"{out} exists already; choose another with -o, or insist with --force."
        raise refuse("file_exists", words, value=str(out)) from None
    except OSError as error:
        words = f"{out} cannot be written: {error.strerror}."
        raise refuse("file_not_written", words, value=str(out)) from error


def _imported(reading: Reading, file: Path) -> tuple[Imported, str]:
    """The job of a foreign file with its report, and as YAML. Raises FactoryError with all that is wrong with it."""
    import yaml

    from core.job.foreign.llama_factory import import_job
    from core.job.foreign.values import settled
    from data.errors import FactoryError, refuse

    values = reading.value
    if reading.findings:  # such as a key that stands there twice: which of the two is meant, nobody knows
        odd = settled(values)[1] if isinstance(values, dict) else []
        told = {one.field for one in reading.findings}
        raise FactoryError([*reading.findings, *(one for one in odd if one.field not in told)])
    if not isinstance(values, dict):
        raise refuse("not_a_llama_factory_job", f"{file} holds no keys such as `stage: sft`, one a line.")
    made = import_job(values, file.absolute().parent)
    left = [f"#   {_line(f'{one.key}: {one.words}')}" for one in made.lines if one.kind == "not mapped"]
    head = [f"# Made from {_line(file.name)}, a training of LLaMA-Factory, by factory import."]
    head += ["# Not carried over:", *left] if left else []
    body = yaml.safe_dump(made.job, sort_keys=False, allow_unicode=True, width=100)
    return made, "\n".join(head) + "\n" + body


def _line(text: str) -> str:
    """A text as one line, so that nothing of it leaves the comment."""
    return " ".join(text.split())


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def eject(
    context: typer.Context,
    job: Annotated[
        Path,
        typer.Argument(metavar="JOB|RUN", help="A job as YAML or JSON, or a run's id.", show_default=False),
    ],
    override: Overrides = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("ejected"),
    json: AsJson = False,
) -> None:
    """Write a job as a plain TRL script that needs nothing of Factory and gives the same losses.

    The folder gets train.py, requirements.txt, and the rows as JSON lines.

    Example: factory eject job.yaml --out my-training
    """
    from json import loads
    from shutil import rmtree

    from core.job.checks import check, refuse_errors
    from core.job.counting import ask
    from core.job.load import load_job
    from core.job.machine import this_machine
    from core.job.places import absolute
    from core.job.plan import make_plan
    from core.runs.storage import half_made, refuse_target

    home, machine = home_of(context), this_machine()
    job = _job_of(home, job)
    asked = absolute(load_job(job, override or []), job.parent)
    refuse_errors(check(asked, machine, home))
    target = user_path(out).absolute()
    refuse_target(target)
    plan = make_plan(asked, home, machine)
    try:
        told = loads(ask("core.training.ejecting", plan, home, str(target)))
    finally:  # its process tidies up, too, but Ctrl-C leaves it a quarter of a second for it
        rmtree(half_made(target), ignore_errors=True)
    if json:
        say_json({"folder": str(out), **told})
        return
    say(table([(name, words) for name, words in told["files"].items()]))
    say(f"Wrote {out}. Run it: cd {out}, then pip install -r requirements.txt and python train.py")


def _job_of(home: Path, job: Path) -> Path:
    """The file of a job that is named by itself or by the run that was made of it."""
    from core.runs.folder import ID, find_run
    from data.errors import FactoryError

    if job.exists() or len(job.parts) != 1 or not ID.fullmatch(job.name):
        return job
    try:
        return find_run(home, job.name).job_json
    except FactoryError as refused:
        (finding,) = refused.findings
        if finding.code == "run_not_found" and not finding.params.get("deleted"):
            return job  # whose sentence speaks of the file
        raise
