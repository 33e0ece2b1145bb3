"""One node of a Slurm job, started by srun: `python -m core.nodes.slurm_node RUN`. Runs the training command as this
node's part of it, with the rank and the meeting place that Slurm's variables say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from core.nodes.rendezvous import command_of_node
from core.runs.courier import VARIABLE, name_for
from core.runs.folder import Run
from core.runs.storage import read_json

STOPPED = 3
ORDERLY = (0, STOPPED)
"""Exit codes of a training that was done, or saved and stopped."""
PATIENCE = 900
"""Seconds for all nodes to meet; Slurm starts them together."""
AFTER_FAULT = 5.0
"""Seconds that node 0 gets to write down what happened, before the end of another node makes srun kill it."""
LAST = 60.0
"""Seconds that node 0 waits for the ends of the others when all is well: its own end makes srun kill them."""


def main(folder: str, given: Mapping[str, str] = os.environ) -> int:
    """Train as the node that Slurm says; the exit code of node 0 is the job's."""
    run = Run(Path(folder))
    rank, nodes, number = (
        int(given.get(name, "0")) for name in ("SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_ID")
    )
    argv = [*node_command(run, rank, given), folder]
    # A group of its own, for srun signals whole groups.
    env = {**given, VARIABLE: name_for(f"{group_of(number)}-{rank}")}
    child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, process_group=0)

    asked: list[int] = []

    def pass_on(signal_number: int, frame: FrameType | None) -> None:
        asked.append(signal_number)
        child.send_signal(signal.SIGTERM)

    # Slurm sends a signal to every process of a step, data loaders' workers too. SIGURG means nothing to any of them.
    for one in (signal.SIGTERM, signal.SIGURG):
        signal.signal(one, pass_on)
    code = child.wait()
    if asked and code == -signal.SIGTERM:
        code = STOPPED  # asked as it was ending by itself: Python's last moments take no signal
    code = 128 - code if code < 0 else code
    note_end(run, number, rank, code)
    if rank == 0:
        if code in ORDERLY:
            wait_for_others(run, number, nodes)
        return code
    if code in ORDERLY:
        return 0  # or srun would take an orderly stop here for a reason to kill node 0 while it saves
    time.sleep(AFTER_FAULT)
    return code


def group_of(number: int | str) -> str:
    """What the events files of a job's nodes begin with."""
    return f"slurm-{number}"


def note_end(run: Run, number: int, rank: int, code: int) -> None:
    """Write how this node's part of a job ended, for node 0 and for the follower."""
    place = end_of(run, number, rank)
    place.parent.mkdir(exist_ok=True)
    half = place.with_suffix(".half")
    half.write_text(str(code), encoding="ascii")
    half.replace(place)


def end_of(run: Run, number: int | str, rank: int) -> Path:
    """The file that says how a node's part of a job ended."""
    return run.path / "nodes" / f"slurm-{number}-{rank}.end"


def wait_for_others(run: Run, number: int, nodes: int) -> None:
    """Until all other nodes have ended, or for so long as they may take."""
    deadline = time.monotonic() + LAST
    while time.monotonic() < deadline:
        if all(end_of(run, number, rank).exists() for rank in range(1, nodes)):
            return
        time.sleep(0.1)


def node_command(run: Run, rank: int, given: Mapping[str, str]) -> list[str]:
    """The training command of this node. The port comes of the job's number: nobody can choose one for all nodes."""
    training = list(read_json(run.plan_json)["training"])
    if (read_json(run.job_json).get("launcher") or {}).get("container"):
        training[0] = sys.executable  # the image's own
    number = int(given.get("SLURM_JOB_ID", "0"))
    endpoint = f"{given.get('SLURM_LAUNCH_NODE_IPADDR', '127.0.0.1')}:{20_000 + number % 10_000}"
    nodes = int(given.get("SLURM_NNODES", "1"))
    if nodes == 1:
        return training
    return command_of_node(training, rank, nodes, endpoint, key=f"{run.id}-{number}", timeout=PATIENCE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
