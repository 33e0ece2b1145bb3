"""A process that keeps to the worker's protocol without training: for faults that concern the supervisor only.

`python -m tests.faults.stand_in BEHAVIOUR [SECONDS] RUN_DIR`; the behaviours are the functions of this file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from core.runs import checkpoints
from core.runs.courier import events_file
from core.runs.folder import Run
from core.runs.journal import Journal
from core.runs.storage import read_json

asked = False


def _on_term(number: int, frame: object) -> None:
    global asked
    asked = True


def _save(run: Run, journal: Journal, step: int) -> None:
    folder = run.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_bytes(b"w" * 1000)
    checkpoints.commit(folder, step, checkpoints.job_hash(read_json(run.job_json)))
    journal.append(
        {"event": "checkpoint", "step": step, "path": f"checkpoints/{folder.name}", "bytes": 1000}, must=True
    )


def _finish(run: Run, journal: Journal) -> None:
    run.model.mkdir(exist_ok=True)
    (run.model / "weights").write_bytes(b"w")
    checkpoints.commit(run.model, 0, "")
    journal.append({"event": "done", "model": "model", "values": {"loss": 1.5}}, must=True)


def train(run: Run, journal: Journal, seconds: float) -> int:
    """Steps of a tenth of a second for `seconds`, then a model; stops and saves when asked."""
    steps = round(seconds * 10)
    journal.append({"event": "ready", "pid": os.getpid()})
    journal.append({"event": "start", "total_steps": steps})
    for step in range(1, steps + 1):
        time.sleep(0.1)
        journal.append({"event": "metric", "step": step, "values": {"loss": 1.0 / step}})
        if asked or run.stop_file.exists():
            _save(run, journal, step)
            return 3
    _finish(run, journal)
    return 0


def late(run: Run, journal: Journal, seconds: float) -> int:
    """Steps until a signal, and no file, asks it to stop."""
    journal.append({"event": "ready", "pid": os.getpid()})
    while not asked:
        journal.append({"event": "metric", "step": 1, "values": {"loss": 1.0}})
        time.sleep(0.1)
    _save(run, journal, 1)
    return 3


def site(run: Run, journal: Journal, seconds: float) -> int:
    """Tells what the lines of its site have exported."""
    journal.append({"event": "ready", "pid": os.getpid()})
    journal.append({"event": "phase", "name": "training", "text": f"SITE is {os.environ.get('SITE')}"})
    _finish(run, journal)
    return 0


def once_more(run: Run, journal: Journal, seconds: float) -> int:
    """Steps until it is asked to stop; started again, it takes one more and finishes."""
    if any(run.checkpoints.glob("checkpoint-*")):
        return train(run, journal, 0.1)
    return train(run, journal, 300)


def until_told(run: Run, journal: Journal, seconds: float) -> int:
    """Steps until somebody leaves a file `enough` in its folder, then a model."""
    journal.append({"event": "ready", "pid": os.getpid()})
    while not (run.path / "enough").exists():
        time.sleep(0.02)
    _finish(run, journal)
    return 0


def deaf(run: Run, journal: Journal, seconds: float) -> int:
    """Ignores SIGTERM and the stop file."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    journal.append({"event": "ready"})
    time.sleep(seconds)
    return 0


def slow_start(run: Run, journal: Journal, seconds: float) -> int:
    """Takes long before it would set its handler."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(seconds)
    return 0


def silent(run: Run, journal: Journal, seconds: float) -> int:
    """Ends with exit code 0, and never says that it is done."""
    journal.append({"event": "ready"})
    return 0


def no_model(run: Run, journal: Journal, seconds: float) -> int:
    """Says that it is done, and leaves a model folder without its marker."""
    _finish(run, journal)
    (run.model / checkpoints.MARKER).unlink()
    return 0


def double_fork(run: Run, journal: Journal, seconds: float) -> int:
    """Leaves a grandchild in a session of its own that ignores SIGTERM, and ends well."""
    code = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
        "os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, close_fds=False)
    journal.append({"event": "ready"})
    _finish(run, journal)
    return 0


def crash(run: Run, journal: Journal, seconds: float) -> int:
    """Dies of a segmentation fault."""
    journal.append({"event": "ready"})
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def crash_while_stopping(run: Run, journal: Journal, seconds: float) -> int:
    """Fails when it is asked to stop, as a save that went wrong would."""
    journal.append({"event": "ready"})
    while not asked:
        time.sleep(0.02)
    journal.append({"event": "error", "code": "disk_full", "message": "The disk is full."}, must=True)
    return 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_term)
    folder = Run(Path(sys.argv[-1]))
    sys.exit(
        globals()[sys.argv[1]](
            folder, Journal(events_file(folder)), float(sys.argv[2]) if len(sys.argv) > 3 else 1.0
        )
    )
