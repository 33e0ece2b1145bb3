"""The training process, `python -m core.training.worker RUN_DIR`: job.json in; events, checkpoints and a model out.

Exit codes: 0 done, 1 failed, 2 refused in words, 3 stopped when asked. Knows nothing of queues and supervisors.
One of several processes (core.training.ranks) leaves word of how it ended instead: which one is to be told of, and
the exit code of all of them, is decided where all their ends are seen.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path

from core.runs.events import Error, Ready
from core.runs.folder import Run
from core.training.stop import Stopped, StopRequest
from core.training.world import (
    World,
    die_with_parent,
    leave_word,
    leaving,
    lost_another,
    this_world,
    writer_for,
)

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 3


def main(run_dir: str) -> int:
    """Run the attempt that attempt.json describes; the exit code says how it ended."""
    run, world = Run(Path(run_dir)), this_world()
    stop = StopRequest(run.stop_file)
    if not world.launched:
        return _attempt(run, stop, world)
    die_with_parent()
    try:
        with leaving():
            code = _attempt(run, stop, world)
    except Stopped:  # in the moments before and after an attempt
        code = STOPPED
    if code in (DONE, STOPPED):
        leave_word(run, world, "done" if code == DONE else "stopped")
    return DONE if code == STOPPED else code  # to torch's launcher every other code is a failure


def _attempt(run: Run, stop: StopRequest, world: World) -> int:
    stop.listen()  # before the slow imports: a stop while they load must not be lost
    writer_for(run, world).emit(Ready(pid=os.getpid()))
    # bitsandbytes 0.50 opens every log on a CPU with advice to install a package that fetches kernels from the hub.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        _engine_first(run)
        from core.training.session import train

        train(run, stop, world)
        return DONE
    except Stopped:
        return STOPPED
    except Exception as problem:
        return _report(problem, run, world)


def _engine_first(run: Run) -> None:
    """Let the engine come before the training libraries: one may have to change them as they are imported."""
    from core.engines import engine_module
    from core.job.spec import JobSpec

    job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    engine_module(job.engine.name).begin(job, run.home)


def _report(problem: Exception, run: Run, world: World) -> int:
    from core.runs.cards import card_for
    from core.runs.checkpoints import clean
    from core.training.faults import explain
    from data.errors import FactoryError

    traceback.print_exc()
    findings = explain(problem, run.path)
    refused = isinstance(problem, FactoryError)
    if world.launched:
        leave_word(run, world, "lost" if lost_another(problem) else "failed", findings, refused=refused)
        return REFUSED if refused else FAILED
    clean(run)  # an unfinished checkpoint is worth nothing, and may be what fills the disk
    writer = writer_for(run, world)
    for finding in findings:
        card = card_for(run, finding.code)
        advice = card.to_json() if card else None
        told = json.loads(json.dumps({"value": finding.value, "params": dict(finding.params)}, default=str))
        field, message = finding.field, finding.message
        writer.emit(Error(code=finding.code, message=message, field=field, advice=advice, **told))
    return REFUSED if refused else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
