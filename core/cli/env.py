"""The word about this machine: env."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from core.cli.show import AsJson, gib, home_of, pairs, say, say_json

if TYPE_CHECKING:
    from core.job.machine import Machine

VARIABLES = ("FACTORY_HOME", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Environment variables that change what a run does and are no secrets."""


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(env)


def env(context: typer.Context, json: AsJson = False) -> None:
    """Print versions and hardware, for a bug report."""
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
    free = "" if facts["home_free"] is None else f" ({gib(facts['home_free'])} free)"
    return {
        "factory": facts["factory"] + commit,
        "python": machine.python,
        "system": machine.system,
        "cores": str(machine.cores),
        "memory": f"{gib(machine.memory)} ({gib(machine.memory_free)} free)",
        **_gpu_lines(machine),
        "home": facts["home"] + free,
        **facts["variables"],
    }


def _gpu_lines(machine: Machine) -> dict[str, str]:
    if not machine.gpus:
        return {"gpu": machine.gpu_problem or "none"}
    return {
        f"gpu {gpu.index}": f"{gpu.name}, {gib(gpu.memory)} ({gib(gpu.memory_free)} free), "
        f"compute {gpu.compute}, driver {gpu.driver}"
        for gpu in machine.gpus
    }
