"""Launcher torchrun: node 0 is this machine, the other nodes are reached over ssh or started by hand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from core.job.base import of_shape, unit
from core.launchers.base import LauncherSpec

if TYPE_CHECKING:
    from core.job.spec import JobSpec

CHECKOUT = Path(__file__).resolve().parents[2]

Host = Annotated[
    str,
    of_shape(
        r"^([A-Za-z_][A-Za-z0-9_.-]{0,31}@)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}$",
        "host or user@host, as ssh takes it",
    ),
]
Endpoint = Annotated[
    str,
    of_shape(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}$", "address:port"),
]
Interface = Annotated[
    str,
    of_shape(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$", "1 to 15 letters, digits, dots, dashes and underscores"),
]


class Spec(LauncherSpec):
    """Train on several machines that see the same home folder: this one is node 0."""

    name: Literal["torchrun"] = "torchrun"
    """The launcher."""
    endpoint: Endpoint | None = None
    """Address and free port of this machine at which the others meet it, 10.0.0.1:29500. Needed for several nodes."""
    hosts: list[Host] = Field([], max_length=511)
    """The other nodes, by rank, as ssh reaches them without a password. Empty: their commands are printed for you."""
    ssh_port: int | None = Field(None, ge=1, le=65_535)
    """Port of the nodes' ssh. Empty: what ssh's own settings say."""
    interface: Interface | None = None
    """Network interface that the processes talk over, eth0. Empty: the one that leads to the other nodes."""
    timeout: int = Field(300, ge=10, le=86_400, json_schema_extra=unit("seconds"))
    """How long node 0 waits for the others, and they for it."""


def command(training: Sequence[str]) -> list[str]:
    """What the supervisor starts for a training command; the run folder follows as its last word."""
    return [sys.executable, "-m", "core.nodes.torchrun"]


def ending() -> list[str]:
    """The command that ends what is left of a run elsewhere: none, as a node that loses node 0 ends itself."""
    return []


def steps(job: JobSpec, training: Sequence[str]) -> list[tuple[str, str]]:
    """What `factory plan` shows besides the training command: titles and texts."""
    spec = job.launcher
    assert isinstance(spec, Spec)
    lines = ["node 0  this machine, by factory train"]
    for rank in range(1, job.hardware.nodes):
        if spec.hosts:
            words = (
                ssh_words(spec, spec.hosts[rank - 1], "HOME_FOLDER", "RUN", rank)
                if rank <= len(spec.hosts)
                else []
            )
        else:
            words = node_words("HOME_FOLDER", "RUN", rank)
        lines.append(f"node {rank}  {shlex.join(words)}")
    return [("Command of each node", "\n".join(lines))]


def node_words(home: Path | str, run: str, rank: int) -> list[str]:
    """The command that a person starts on another node."""
    return ["factory", "--home", str(home), "node", run, "--rank", str(rank)]


def ssh_words(spec: Spec, host: str, home: Path | str, run: str, rank: int) -> list[str]:
    """The same over ssh, as an argument list. ssh gives its last word to a shell there, so that one is quoted."""
    port = ["-p", str(spec.ssh_port)] if spec.ssh_port else []
    there = ["env", "-C", str(CHECKOUT), sys.executable, "-m", "core.cli", *node_words(home, run, rank)[1:]]
    options = (
        "BatchMode=yes",
        f"ConnectTimeout={min(spec.timeout, 30)}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=4",
    )
    return [
        "ssh",
        "-T",
        *(word for one in options for word in ("-o", one)),
        *port,
        "--",
        host,
        shlex.join(there),
    ]
