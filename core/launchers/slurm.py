"""Launcher slurm: the run is a job of a Slurm cluster, handed in by sbatch and followed from here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from core.launchers.base import LauncherSpec

# No value may leave its `#SBATCH` line or become a second word of it: no blanks, quotes, marks of comments or escapes.
SlurmName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        json_schema_extra={"shape": "1 to 64 letters, digits, dots, dashes and underscores"},
    ),
]
Partition = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(,[A-Za-z0-9][A-Za-z0-9_.-]{0,63}){0,15}$",
        json_schema_extra={"shape": "a partition, or several with commas between"},
    ),
]
TimeLimit = Annotated[
    str,
    Field(
        pattern=r"^([0-9]{1,6}|[0-9]{1,4}:[0-9]{2}|[0-9]{1,4}:[0-9]{2}:[0-9]{2}|[0-9]{1,3}-[0-9]{1,2}(:[0-9]{2}){0,2})$",
        json_schema_extra={"shape": "minutes, hours:minutes:seconds or days-hours"},
    ),
]
Memory = Annotated[
    str,
    Field(
        pattern=r"^[1-9][0-9]{0,8}[KMGT]?$", json_schema_extra={"shape": "a number with K, M, G or T, 64G"}
    ),
]
Constraint = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9(\[][A-Za-z0-9_.,&|*:()\[\]-]{0,127}$",
        json_schema_extra={"shape": "features of nodes, with & and | between"},
    ),
]
Nodes = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,255}$",
        json_schema_extra={"shape": "names of nodes, n1,n[3-5]"},
    ),
]
Module = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$",
        json_schema_extra={"shape": "a module's name, cuda/12.8"},
    ),
]


class Spec(LauncherSpec):
    """Train as a job of a Slurm cluster whose nodes see this home folder."""

    name: Literal["slurm"] = "slurm"
    """The launcher."""
    partition: Partition | None = None
    """Partition (queue). Empty: the cluster's default."""
    account: SlurmName | None = None
    """Account that is charged."""
    qos: SlurmName | None = None
    """Quality of service."""
    reservation: SlurmName | None = None
    """Reservation whose nodes are used."""
    time: TimeLimit | None = None
    """Longest run, 2-00:00:00 or minutes. Empty: the partition's limit. The run saves and stops shortly before."""
    gpus: bool = True
    """Whether each process gets a GPU of its node; false on nodes without GPUs."""
    gpu_type: SlurmName | None = None
    """Kind of GPU as the cluster calls it, a100. Empty: any."""
    cpus_per_task: int | None = Field(None, ge=1, le=1024)
    """CPU cores for each node's processes together. Empty: the cluster's default."""
    memory: Memory | None = None
    """Main memory of each node, 64G. Empty: the cluster's default."""
    constraint: Constraint | None = None
    """Features that the nodes must have."""
    exclude: Nodes | None = None
    """Nodes that are not used."""
    modules: list[Module] = Field([], max_length=20)
    """Environment modules that are loaded on every node before training."""


def command(training: Sequence[str]) -> list[str]:
    """What the supervisor starts for a training command; the run folder follows as its last word."""
    return [sys.executable, "-m", "core.nodes.slurm"]
