"""The command `factory`. One file per family of words; a new one is a file here and its words in FAMILIES.

Of the families only the one that is asked for is imported, and what a command needs beyond typer is imported inside
it: `factory --help` stays a matter of 0.1 s, and a shell loop over hundreds of jobs one of a minute.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from core.job.register import Register

FAMILIES: dict[str, tuple[str, ...]] = {
    "train": ("train", "resume"),
    "runs": ("runs", "logs", "stop", "queue"),
    "nodes": ("node",),
    "chat": ("chat",),
    "serve": ("serve",),
    "export": ("export",),
    "job": ("new", "check", "plan", "schema"),
    "fit": ("fit",),
    "exchange": ("import", "eject"),
    "data": ("data",),
    "rewards": ("rewards",),
    "board": ("board",),
    "env": ("env",),
}
"""The files of this package that hold commands, in the order of the help, with the words that each one adds."""
MODULES = Register(__name__, *FAMILIES)


def build_app(word: str | None = None) -> typer.Typer:
    """The command line with the family that `word` belongs to; with every family when it is none or unknown."""
    app = typer.Typer(
        name="factory",
        help="Train language models: a checked job becomes a run, a run becomes a model.",
        epilog="First job: factory new job.yaml --data FILE, then factory check job.yaml, then factory train job.yaml.",
        add_completion=False,
        rich_markup_mode=None,  # with Rich, --help alone takes 0.24 CPU-seconds
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )

    @app.callback()
    def factory(
        context: typer.Context,
        home: Annotated[
            Path | None,
            typer.Option(help="Folder of runs, models and caches; else $FACTORY_HOME, else ~/factory."),
        ] = None,
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_version, help="Print the version and leave."),
        ] = False,
    ) -> None:
        context.obj = home

    chosen = [name for name, words in FAMILIES.items() if word in words]
    for name in chosen or FAMILIES:
        MODULES.named(name).register(app)
    return app


def _home_first(words: list[str]) -> list[str]:
    """The words with --home in front, where it belongs to every command; people write it at the end, too."""
    for place, word in enumerate(words):
        if word == "--":
            break
        length = 2 if word == "--home" else 1 if word.startswith("--home=") else 0
        if length:
            return [*words[place : place + length], *words[:place], *words[place + length :]]
    return words


def _command(words: list[str]) -> str | None:
    """The word that names the command: the first that is no option, behind --home and its folder."""
    behind = words[2:] if words[0] == "--home" else words
    return next((word for word in behind if not word.startswith("-")), None)


def _version(wanted: bool) -> None:
    if wanted:
        from core.cli.show import say
        from core.job.machine import factory_version

        say(f"factory {factory_version()}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (what was asked for failed), 2 (bad input, refused).

    Refusals are printed as their sentences on stderr (as JSON on stdout with --json); a fault of ours is one
    sentence, its traceback goes to a file.
    """
    words = _home_first(list(sys.argv[1:] if arguments is None else arguments)) or ["--help"]
    gc.set_threshold(
        50_000, 20, 20
    )  # importing makes no garbage; looking for it takes a tenth of a short command
    os.environ.setdefault(
        "PYDANTIC_DISABLE_PLUGINS", "__all__"
    )  # or it searches every installed package for some
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 shows an escape, not a fault
            stream.reconfigure(errors="backslashreplace")
    try:
        code = build_app(_command(words))(args=words, prog_name="factory", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Abort:  # the input ended where an answer was asked for
        return 1
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing more can be said, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _explain(error, as_json="--json" in words)


def _explain(error: Exception, *, as_json: bool) -> int:
    import tempfile
    import traceback

    from core.cli.misuse import is_misuse, refusal_of
    from core.cli.show import say, show_refusal
    from data.errors import FactoryError

    if type(error).__name__ == "NoArgsIsHelpError":  # a word that has words of its own, alone
        say(str(error), err=True)
        return 2
    if is_misuse(error):
        error = refusal_of(error)
    if isinstance(error, FactoryError):
        show_refusal(error, as_json=as_json)
        return 2
    with tempfile.NamedTemporaryFile("w", prefix="factory-fault-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    say(
        f"error  This is a fault of Factory, not of yours: {type(error).__name__}: {error}\n"
        f"       Please report it with {file.name} and the output of: factory env",
        err=True,
    )
    return 1
