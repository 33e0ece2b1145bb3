"""Launcher torchrun: node 0 is this machine, the other nodes are reached over ssh or started by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from core.job.base import unit
from core.launchers.base import LauncherSpec

Host = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z_][A-Za-z0-9_.-]{0,31}@)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}$",
        json_schema_extra={"shape": "host or user@host, as ssh takes it"},
    ),
]
Endpoint = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}$",
        json_schema_extra={"shape": "address:port"},
    ),
]
Interface = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$",
        json_schema_extra={"shape": "1 to 15 letters, digits, dots, dashes and underscores"},
    ),
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
