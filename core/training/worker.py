"""The training process, `python -m core.training.worker RUN_DIR`: job.json in; events, checkpoints and a model out.

Exit codes: 0 done, 1 failed, 2 refused in words, 3 stopped when asked. Knows nothing of queues and supervisors.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path

from core.runs.events import Error, EventWriter, Ready
from core.runs.folder import Run
from core.training.stop import Stopped, StopRequest

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 3


def main(run_dir: str) -> int:
    """Run the attempt that attempt.json describes; the exit code says how it ended."""
    run = Run(Path(run_dir))
    stop = StopRequest(run.stop_file)
    stop.listen()  # before the slow imports: a stop while they load must not be lost
    EventWriter(run.events).emit(Ready(pid=os.getpid()))
    # bitsandbytes 0.50 opens every log on a CPU with advice to install a package that fetches kernels from the hub.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        _engine_first(run)
        from core.training.session import train

        train(run, stop)
        return DONE
    except Stopped:
        return STOPPED
    except Exception as problem:
        return _report(problem, run)


def _engine_first(run: Run) -> None:
    """Let the engine come before the training libraries: one may have to change them as they are imported."""
    from core.engines import engine_module
    from core.job.spec import JobSpec

    job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    engine_module(job.engine.name).begin(job, run.home)


def _report(problem: Exception, run: Run) -> int:
    from core.runs.cards import card_for
    from core.runs.checkpoints import clean
    from core.training.faults import explain
    from data.errors import FactoryError

    traceback.print_exc()
    findings = explain(problem, run.path)
    clean(run)  # an unfinished checkpoint is worth nothing, and may be what fills the disk
    writer = EventWriter(run.events)
    for finding in findings:
        card = card_for(run, finding.code)
        advice = card.to_json() if card else None
        writer.emit(Error(code=finding.code, message=finding.message, field=finding.field, advice=advice))
    return REFUSED if isinstance(problem, FactoryError) else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
