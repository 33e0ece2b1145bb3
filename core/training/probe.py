"""Two real steps on the longest rows: `python -m core.training.probe HOME < job.json`, JSON on stdout.

Started by `factory plan --probe`, which shows the memory and the time. It is the run itself, in its own folder that
is taken away afterwards, ended behind the second step (the first makes the optimizer's states) and before anything is
saved. Exit code 2 and {"findings": [...]} when the job cannot be run.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from datasets import Dataset

from core.job.spec import JobSpec
from core.runs.folder import Run
from core.training import session
from core.training.answering import answer
from core.training.callbacks import RunCallback
from core.training.faults import explain
from core.training.rows import rows_for
from core.training.stop import StopRequest
from data.errors import FactoryError, refuse

STEPS = 2


class _Enough(Exception):
    """The second step is over."""


def probe(job: JobSpec, home: Path) -> dict[str, Any]:
    """Highest memory in bytes, seconds of the second step, and tokens of the longest rows.

    One process is looked at, as each of several with the whole model would be. Raises what the run itself would raise,
    and FactoryError where the weights are shared out.
    """
    if job.hardware.sharing not in ("none", "ddp"):
        text = (
            f"--probe looks at one process, which says nothing of hardware.strategy {job.hardware.sharing}; leave it "
            "out, the forecast counts with the strategy."
        )
        raise refuse("probe_of_one", text, field="hardware.strategy", value=job.hardware.sharing)
    alone = {"devices": None, "nodes": 1, "strategy": None}
    hardware = job.hardware.model_copy(update=alone)
    train = job.train.model_copy(
        update={
            "max_steps": STEPS,
            "epochs": None,
            "keep_best": False,
            "early_stopping": None,
            "logging_steps": 1,
        }
    )
    evaluate = job.evaluate.model_copy(update={"prompts": ["?"], "max_new_tokens": 1})
    short = job.model_copy(
        update={"train": train, "evaluate": evaluate, "report_to": [], "hardware": hardware}
    )
    (home / "probes").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=home / "probes"))
    try:
        return _run(short, Run(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(job: JobSpec, run: Run) -> dict[str, Any]:
    run.checkpoints.mkdir()
    run.job_json.write_text(job.model_dump_json(), "utf-8")
    run.attempt_json.write_text(json.dumps({"attempt": 1, "resume": None}), "utf-8")
    clock: list[float] = []
    _stop_behind_the_last_step(clock)
    longest: list[int] = []
    session.rows_for = lambda *given: _longest_rows(rows_for(*given), job, run.path, longest)  # type: ignore[assignment]
    try:
        session.train(run, StopRequest(run.stop_file))
    except _Enough:
        pass
    return {"memory": _peak(), "step_seconds": clock[-1] - clock[-2], "longest": max(longest)}


def _stop_behind_the_last_step(clock: list[float]) -> None:
    """Let the run's callback keep the time of each step's end, and end the last one before it saves."""

    def begin(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        clock.append(time.perf_counter())

    def end(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        clock.append(time.perf_counter())
        if state.global_step >= STEPS:
            raise _Enough

    # This process ends with the probe, so nobody else sees the change.
    RunCallback.on_step_begin = begin  # type: ignore[method-assign]
    RunCallback.on_step_end = end  # type: ignore[method-assign]


def _longest_rows(prepared: Any, job: JobSpec, folder: Path, longest: list[int]) -> Any:
    """The prepared rows, only the longest of them, as many as the steps take."""
    table = Dataset.from_file(str(prepared.train)).data.table.combine_chunks()
    sizes = sum(_sizes(table[name]) for name in table.column_names if name.endswith("_ids"))
    needed = STEPS * (job.train.batch_size or 1) * (job.train.gradient_accumulation or 1)
    order = np.argsort(-np.asarray(sizes), kind="stable")
    picked = np.resize(order[:needed], needed)
    longest.append(int(np.asarray(sizes).max()))
    path = folder / "longest.arrow"
    with pyarrow.ipc.new_stream(str(path), table.schema) as out:
        out.write_table(table.take(pyarrow.array(picked)))
    counts = prepared.report["counts"]
    report = {**prepared.report, "counts": {**counts, "train": {**counts["train"], "sequences": needed}}}
    return replace(prepared, train=path, eval=None, report=report)


def _sizes(column: Any) -> Any:
    lengths = pyarrow.compute.list_value_length(column.combine_chunks())
    return lengths.to_numpy(zero_copy_only=False)


def _peak() -> int:
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        outside = total - free - torch.cuda.memory_reserved()  # CUDA's own context
        return int(torch.cuda.max_memory_reserved() + outside)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> int:
    """Read the job from stdin, write the measurement to stdout."""
    home = Path(sys.argv[1])

    def measured(text: str) -> dict[str, Any]:
        try:
            return probe(JobSpec.model_validate_json(text), home)
        except Exception as problem:
            raise FactoryError(explain(problem, home)) from problem

    return answer(measured)


if __name__ == "__main__":
    sys.exit(main())
