"""The export process, `python -m core.training.exporting RUN_DIR NAME`: a record in, a verified folder or a reason out.

Exit codes: 0 done, 1 failed, 2 refused in words, 3 cancelled. Knows nothing of who asked.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from core.runs.exports import Writer
from core.runs.folder import Run
from data.errors import FactoryError, Finding

DONE, FAILED, REFUSED, CANCELLED = 0, 1, 2, 3


class Cancelled(BaseException):
    """Somebody asked to end the export. No Exception: no library may swallow it on its way out."""


def main(run_dir: str, name: str) -> int:
    """Make the export that the record exports/NAME.json asks for; the exit code says how it ended."""
    run = Run(Path(run_dir))
    writer = Writer(run, name)

    def cancelled(number: int, frame: Any) -> None:
        raise Cancelled

    signal.signal(signal.SIGTERM, cancelled)
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    temporary: Path | None = None
    try:
        writer.note(pid=os.getpid())
        writer.phase("loading the libraries", 0.02)
        from core.training.export.work import export, place_of

        temporary = place_of(run, writer.record)[0]
        writer.end("done", share=1.0, **export(run, writer))
        return DONE
    except Cancelled:
        _remove(temporary)
        writer.end("cancelled")
        return CANCELLED
    except Exception as problem:
        traceback.print_exc()
        _remove(temporary)
        findings = _explain(problem, run, name)
        told = {"code": findings[0].code, "message": " ".join(one.message for one in findings)}
        writer.end("failed", error=told)
        return REFUSED if isinstance(problem, FactoryError) else FAILED


def _remove(temporary: Path | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # tidying up is not cancelled
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


def _explain(problem: Exception, run: Run, name: str) -> tuple[Finding, ...]:
    """What to tell: our own words as they are, a full disk and want of memory as such, else the fault's first line."""
    from core.training.faults import is_disk_full, is_out_of_memory

    if isinstance(problem, FactoryError):
        return problem.findings
    if is_disk_full(problem, run.exports):
        text = (
            "The disk is full, so the export was taken back; make room, or choose another place with --out."
        )
        return (Finding("disk_full", text),)
    if is_out_of_memory(problem):
        text = "Memory ran out, so the export was taken back; end other programs, then export again."
        return (Finding("out_of_memory", text),)
    first = (str(problem).strip().splitlines() or [""])[0][:300]
    log = run.exports / f"{name}.log"
    text = f"The export failed with {type(problem).__name__}: {first}; the traceback is in {log}."
    return (Finding("internal_error", text, params={"type": type(problem).__name__}),)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
