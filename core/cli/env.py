"""The words about this machine and what is installed on it: env, env list, env install."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, duration, home_of, pairs, say, say_json, table
from data.words import byte_size

if TYPE_CHECKING:
    from core.job.environments import Environment
    from core.job.machine import Machine

VARIABLES = (
    "FACTORY_HOME",
    "FACTORY_ENVS",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
"""Environment variables that change what a run does and are no secrets."""


def register(app: typer.Typer) -> None:
    """Add this family's commands: env alone tells of the machine."""
    group = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    group.callback()(env)
    group.command("list")(list_)
    group.command()(install)
    app.add_typer(group, name="env")


def env(context: typer.Context, json: AsJson = False) -> None:
    """Print versions and hardware, for a bug report; or install what only some need."""
    if context.invoked_subcommand is not None:
        return
    from core.job.machine import factory_version, git_state, this_machine, versions

    machine, home = this_machine(), home_of(context)
    facts: dict[str, Any] = {
        "factory": factory_version(),
        "git": git_state(),
        **machine.to_json(),
        "home": str(home),
        "home_free": _free(home),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "packages": versions(),
    }
    if json:
        say_json(facts)
        return
    say(pairs(_lines(facts, machine)))
    say()
    say(pairs({name: version or "not installed" for name, version in facts["packages"].items()}))


def list_(context: typer.Context, json: AsJson = False) -> None:
    """List what can be installed beside Factory, and what is."""
    from core.job.environments import environments

    home = home_of(context)
    found = environments()
    if json:
        say_json([_facts(one, home) for one in found])
        return
    rows = [(one.name, _size(one), "yes" if one.installed(home) else "no", one.about) for one in found]
    say(table(rows, ("name", "takes", "installed", "for"), right=(1,)))


def install(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="One of: factory env list.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option(help="Print the commands without running them.")] = False,
    json: AsJson = False,
) -> None:
    """Install what only some need, such as another server.

    Our own pinned packages stay as they are: what has pins of its own goes into an environment of its own.

    Example: factory env install vllm
    """
    import shlex

    from core.job.environments import environment, install

    chosen, home = environment(name), home_of(context)
    if dry_run:
        commands = chosen.commands(home)
        say_json(commands) if json else say("\n".join(shlex.join(command) for command in commands))
        return
    if not chosen.installed(home):
        say(f"Installing {chosen.name} ({_size(chosen)} on disk) into {chosen.folder(home)}", err=True)
        seconds = install(chosen, home)
        say(f"{chosen.name} is installed, in {duration(seconds)}.", err=json)
    elif not json:
        say(f"{chosen.name} is installed already.")
    if json:
        say_json(_facts(chosen, home))


def _facts(one: Environment, home: Path) -> dict[str, Any]:
    return {
        "name": one.name,
        "about": one.about,
        "packages": list(one.packages),
        "takes": one.takes,
        "needs": one.needs,
        "folder": str(one.folder(home)),
        "installed": one.installed(home),
    }


def _size(one: Environment) -> str:
    return f"{one.takes / 10**9:.1f} GB" if one.takes >= 10**9 else f"{one.takes / 10**6:.0f} MB"


def _free(home: Path) -> int | None:
    """Free bytes under the home folder; None when the disk cannot be asked."""
    from core.job.machine import disk_free

    try:
        return disk_free(home)
    except OSError:
        return None


def _lines(facts: dict[str, Any], machine: Machine) -> dict[str, str]:
    git = facts["git"]
    commit = f" ({git['commit'][:12]}{', changed' if git['changed'] else ''})" if git else ""
    free = "" if facts["home_free"] is None else f" ({byte_size(facts['home_free'])} free)"
    return {
        "factory": facts["factory"] + commit,
        "python": machine.python,
        "system": machine.system,
        "cores": str(machine.cores),
        "memory": f"{byte_size(machine.memory)} ({byte_size(machine.memory_free)} free)",
        **_gpu_lines(machine),
        "home": facts["home"] + free,
        **facts["variables"],
    }


def _gpu_lines(machine: Machine) -> dict[str, str]:
    if not machine.gpus:
        return {"gpu": machine.gpu_problem or "none"}
    return {
        f"gpu {gpu.index}": f"{gpu.name}, {byte_size(gpu.memory)} ({byte_size(gpu.memory_free)} free), "
        f"compute {gpu.compute}, driver {gpu.driver}"
        for gpu in machine.gpus
    }
