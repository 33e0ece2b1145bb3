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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.runs.checkpoints import IN_USE
from core.runs.exports import Writer
from core.runs.folder import Run
from data.errors import FactoryError, Finding

DONE, FAILED, REFUSED, CANCELLED = 0, 1, 2, 3


def main(run_dir: str, name: str) -> int:
    """Make the export that the record exports/NAME.json asks for; the exit code says how it ended."""
    run = Run(Path(run_dir))
    writer = Writer(run, name)
    temporary, pin = temporary_folder(run, writer.record), pin_of(run, writer.record)

    def tidy() -> None:
        shutil.rmtree(temporary, ignore_errors=True)
        if pin is not None:
            pin.unlink(missing_ok=True)

    def cancelled(number: int, frame: Any) -> None:
        # Ended here and now, not by an exception: some library catches all of them while it is imported.
        tidy()
        writer.end("cancelled")
        os._exit(CANCELLED)

    signal.signal(signal.SIGTERM, cancelled)
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        writer.note(pid=os.getpid())
        writer.phase("loading the libraries", 0.02)
        from core.training.export.work import export

        if pin is not None:
            pin.touch()
        writer.end("done", share=1.0, **export(run, writer))
        return DONE
    except Exception as problem:
        traceback.print_exc()
        tidy()
        findings = _explain(problem, run, name)
        told = {"code": findings[0].code, "message": " ".join(one.message for one in findings)}
        writer.end("failed", error=told)
        return REFUSED if isinstance(problem, FactoryError) else FAILED
    finally:
        tidy()


def temporary_folder(run: Run, record: Mapping[str, Any]) -> Path:
    """Where an export is made before it gets its name."""
    final = place_of(run, record)
    return final.with_name(f".tmp-{final.name}")


def place_of(run: Run, record: Mapping[str, Any]) -> Path:
    """The folder that an export becomes."""
    return Path(record["out"]) if record.get("out") else run.exports / str(record["name"])


def pin_of(run: Run, record: Mapping[str, Any]) -> Path | None:
    """A file that keeps a checkpoint while it is read, as the run may go on and retire it; None where not needed."""
    step = record["spec"].get("checkpoint")
    pin = run.checkpoints / f"checkpoint-{step}" / IN_USE
    return pin if step is not None and not pin.exists() else None


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
