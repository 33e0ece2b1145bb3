"""Launcher slurm: the run is a job of a Slurm cluster, handed in by sbatch and followed from here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from core.job.base import of_shape
from core.launchers.base import LauncherSpec

if TYPE_CHECKING:
    from core.job.spec import JobSpec

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = "slurm.sh"
"""Name of the batch script in the run folder."""
STOP_SIGNAL = "URG"
"""What asks a job's nodes to save and stop (core/nodes/slurm_node.py): every other process of theirs ignores it."""
NOTICE = 120
"""Seconds before its time limit at which Slurm tells a job to save and stop."""
SHORTEST = 10
"""Minutes of a time limit from which on that is done: Slurm tells up to a minute early, and a short job at once."""

# No value may leave its `#SBATCH` line or become a second word of it: no blanks, quotes, marks of comments or escapes.
SlurmName = Annotated[
    str,
    of_shape(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", "1 to 64 letters, digits, dots, dashes and underscores"),
]
Partition = Annotated[
    str,
    of_shape(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(,[A-Za-z0-9][A-Za-z0-9_.-]{0,63}){0,15}$",
        "a partition, or several with commas between",
    ),
]
TimeLimit = Annotated[
    str,
    of_shape(
        r"^([0-9]{1,6}|[0-9]{1,4}:[0-9]{2}|[0-9]{1,4}:[0-9]{2}:[0-9]{2}|[0-9]{1,3}-[0-9]{1,2}(:[0-9]{2}){0,2})$",
        "minutes, hours:minutes:seconds or days-hours:minutes:seconds",
    ),
]
Memory = Annotated[
    str,
    of_shape(r"^[1-9][0-9]{0,8}[KMGT]$", "a number with K, M, G or T, 64G"),
]
Constraint = Annotated[
    str,
    of_shape(r"^[A-Za-z0-9(\[][A-Za-z0-9_.,&|*:()\[\]-]{0,127}$", "features of nodes, with & and | between"),
]
Nodes = Annotated[
    str,
    of_shape(r"^[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,255}$", "names of nodes, n1,n[3-5]"),
]
Module = Annotated[
    str,
    of_shape(r"^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$", "a module's name, cuda/12.8"),
]
Image = Annotated[
    str,
    of_shape(
        r"^[A-Za-z0-9./][A-Za-z0-9._/@#:+~-]{0,511}$",
        "an image as pyxis takes it, nvcr.io#nvidia/pytorch:25.09-py3",
    ),
]
Mount = Annotated[
    str,
    of_shape(
        r"^/[^\s,:]{0,511}(:/[^\s,:]{0,511}(:[a-z+]{1,32})?)?$",
        "folder, folder:folder or folder:folder:ro, absolute",
    ),
]
ShellLine = Annotated[
    str,
    of_shape(
        r"^[^\x00-\x08\x0a-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x08\x0a-\x1f\x7f]*$",
        "one line of shell",
        max_length=1000,
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
    time: Annotated[int, Field(ge=1, le=1_000_000)] | TimeLimit | None = None
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
    """Environment modules that are loaded before training, on every node."""
    setup: list[ShellLine] = Field([], max_length=50)
    """Lines of shell for the site, run before training. What they export reaches every node. Not from the board."""
    container: Image | None = None
    """Container image to train in, by pyxis (srun --container-image). Its python3 has Factory's requirements."""
    mounts: list[Mount] = Field([], max_length=50)
    """Folders that the container sees beside the home, Factory's and the job's own: /data or /data:/data:ro."""


def command(training: Sequence[str]) -> list[str]:
    """What the supervisor starts for a training command; the run folder follows as its last word."""
    return [sys.executable, "-m", "core.nodes.slurm"]


def ending() -> list[str]:
    """The command that ends what is left of a run elsewhere; the run folder follows as its last word."""
    return [*command(()), "--end"]


def steps(job: JobSpec, training: Sequence[str]) -> list[tuple[str, str]]:
    """What `factory plan` shows besides the training command: titles and texts."""
    return [("Batch script, handed in by sbatch", script(job, training, "RUN_FOLDER"))]


def script(job: JobSpec, training: Sequence[str], run: Path | str) -> str:
    """The batch script of a job; `run` is its run folder, where it is kept and where sbatch is called."""
    spec = job.launcher
    assert isinstance(spec, Spec)
    site = [*(f"module load {name}" for name in spec.modules), *spec.setup]
    if site:
        # Its exit code is ours: one of theirs could say that the training was done, or had saved and stopped.
        trap = "a line of launcher.modules or launcher.setup ended with exit code $?: $BASH_COMMAND"
        site = [f"trap 'echo \"{trap}\"; exit 1' ERR", *site, "trap - ERR"]
    # A login shell reads what defines `module`; without a line of the site nothing of it is needed.
    lines = ["#!/bin/bash -l" if site else "#!/bin/bash"]
    lines += [
        "# Made by Factory from job.json, anew for each attempt.",
        *(f"#SBATCH {one}" for one in _wishes(job)),
    ]
    lines += [
        "set -e",
        *site,
    ]  # no -u: what sites have in their modules and environments reads empty variables
    python = [sys.executable] if spec.container is None else ["python3"]
    node = [*python, "-m", "core.nodes.slurm_node", str(run)]
    cores = ["--cpus-per-task", str(spec.cpus_per_task)] if spec.cpus_per_task else []
    srun = ["srun", "--kill-on-bad-exit=1", *cores, *_container(job, run), *node]
    return "\n".join([*lines, shlex.join(["cd", str(CHECKOUT)]), shlex.join(["exec", *srun])]) + "\n"


def _container(job: JobSpec, run: Path | str) -> list[str]:
    """The options of pyxis (README of NVIDIA/pyxis, 0.21): the image, and the same paths inside as outside."""
    spec = job.launcher
    assert isinstance(spec, Spec)
    if spec.container is None:
        return []
    home = run.parent.parent if isinstance(run, Path) else "HOME_FOLDER"
    mounts = [f"{path}:{path}" for path in dict.fromkeys([str(CHECKOUT), str(home)])]
    mounts += [f"{path}:{path}:ro" for path in own_paths(job)]
    mounts += [one if ":" in one else f"{one}:{one}" for one in spec.mounts]
    return [
        f"--container-image={spec.container}",
        f"--container-mounts={','.join(dict.fromkeys(mounts))}",
        f"--container-workdir={CHECKOUT}",
    ]


def own_paths(job: JobSpec) -> list[str]:
    """The files and folders that the job itself names."""
    from core.job.places import path_fields  # it knows the job, and the job knows its launchers

    texts = (holder[key] for _, holder, key in path_fields(job.model_dump(mode="json")))
    return sorted({text for text in texts if text.startswith("/")})


def _wishes(job: JobSpec) -> Iterator[str]:
    """The options of sbatch, one a line. Every value was checked by its pattern, so that none can be two."""
    spec, hardware = job.launcher, job.hardware
    assert isinstance(spec, Spec)
    yield "--job-name=factory"
    yield f"--nodes={hardware.nodes}"
    yield "--ntasks-per-node=1"
    if spec.gpus:
        yield f"--gpus-per-node={spec.gpu_type + ':' if spec.gpu_type else ''}{hardware.per_node}"
    for option, value in (
        ("cpus-per-task", spec.cpus_per_task),
        ("mem", spec.memory),
        ("partition", spec.partition),
        ("account", spec.account),
        ("qos", spec.qos),
        ("reservation", spec.reservation),
        ("time", spec.time),
        ("constraint", spec.constraint),
        ("exclude", spec.exclude),
    ):
        if value is not None:
            yield f"--{option}={value}"
    # Beside the script, in the run folder: no path stands in a line of its own.
    yield "--output=log.txt"
    yield "--open-mode=append"
    yield "--no-requeue"
    if spec.time is None or minutes(spec.time) >= SHORTEST:
        yield f"--signal={STOP_SIGNAL}@{NOTICE}"


def minutes(time: str | int) -> int:
    """A time limit of Slurm's in whole minutes: `90`, `30:00`, `1:30:00`, `2-12`, `2-12:30:00`."""
    days, _, rest = str(time).rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:  # hours[:minutes[:seconds]]
        hours, count = ([*parts, 0])[:2]
    elif len(parts) == 3:
        hours, count = parts[0], parts[1]
    else:  # minutes[:seconds]
        hours, count = 0, parts[0]
    return int(days or 0) * 1440 + hours * 60 + count
