"""One of several processes of a run, without training: `python -m tests.faults.stand_in_rank BEHAVIOUR RUN_DIR`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from core.runs.folder import Run
from core.training.stop import Stopped, StopRequest
from core.training.world import die_with_parent, leave_word, this_world
from data.errors import Finding
from tests.faults.stand_in import Journal, _finish, _save


def main(behaviour: str, run: Run) -> int:
    """Take steps until asked to stop; the second process does what the behaviour says at its third."""
    world = this_world()
    die_with_parent()
    stop = StopRequest(run.stop_file)
    stop.listen()
    stop.finish_first(True)
    journal = Journal(run.events)
    if world.first:
        journal.append({"event": "ready", "pid": os.getpid()})
    sys.stdout.write(f"said by {world.rank}\n")
    sys.stdout.flush()
    for step in range(1, 6 if behaviour == "train" else 600):
        time.sleep(0.1)
        if world.first:
            journal.append({"event": "metric", "step": step, "values": {"loss": 1.0 / step}})
        if world.rank == 1 and step == 3:
            _misbehave(behaviour, run)
        if stop.asked() and behaviour != "deaf":
            if world.first:
                _save(run, journal, step)
            leave_word(run, world, "stopped")
            return 0
    if world.first:
        _finish(run, journal)
    leave_word(run, world, "done")
    return 0


def _misbehave(behaviour: str, run: Run) -> None:
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "exits":
        os._exit(7)
    if behaviour == "refuses":
        finding = Finding("data_missing", "The rows are gone; put them back.", field="data.path")
        leave_word(run, this_world(), "failed", [finding], refused=True)
        os._exit(2)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Run(Path(sys.argv[-1]))))
    except Stopped:
        sys.exit(3)
