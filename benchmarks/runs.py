"""What runs cost beside the training: submitting, waiting, listing, reading logs. `python -m benchmarks.runs [N]`.

Submits N (200) jobs from a shell loop's point of view: one `factory train --detach` after the other, on a tiny model,
while the first of them trains. Numbers are printed, not asserted; the targets of issue 3 stand beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from core.runs import control
from core.runs.folder import Run, create_run, list_runs
from core.runs.process import holders_of
from core.runs.states import Book, new_record, read_status
from tests.tiny import save_tiny_at

FACTORY = [sys.executable, "-m", "core.cli"]


def main(count: int = 200) -> None:
    """Measure everything in a folder of its own and print a line each."""
    with tempfile.TemporaryDirectory(prefix="benchmark-runs-") as folder:
        os.environ |= {"FACTORY_SLOTS": f"{folder}/slots", "OMP_NUM_THREADS": "1"}
        home = Path(folder) / "home"
        job = _job(Path(folder))
        seconds, cpu = _submit(home, job, count)
        runs = [run for run in list_runs(home) if not read_status(run).over]
        waiting = [pid for run in runs[-20:] for pid in holders_of(run.lock)]
        memory = [_memory(pid) for pid in waiting]
        each = f"{seconds / count * 1000:.0f} ms each, {cpu / count * 1000:.0f} ms of CPU"
        _print(f"submit {count} jobs", f"{seconds:.1f} s ({each})", "60 s for 200")
        if memory:
            rss, own = (sum(values) / len(memory) for values in zip(*memory, strict=True))
            _print("a waiting supervisor", f"{rss:.1f} MiB resident, {own:.1f} MiB its own", "11 MB")
        _end(runs)
        many = Path(folder) / "many"
        _make_runs(many, 1000)
        _print("factory runs, 1,000 runs", f"{_best(['--home', str(many), 'runs']):.2f} s", "0.3 s")
        _print("factory runs --json", f"{_best(['--home', str(many), 'runs', '--json']):.2f} s", "0.3 s")
        run = list_runs(many)[0]
        with run.log.open("wb") as log:
            log.truncate(10 << 30)
            log.seek(0, os.SEEK_END)
            log.write(b"the end\n" * 100)
        _print("factory logs, 10 GB", f"{_best(['--home', str(many), 'logs', run.id]):.2f} s", "0.2 s")
        _print("an empty factory word", f"{_best(['--version']):.2f} s", "(what every word costs)")


def _print(what: str, got: str, target: str) -> None:
    print(f"{what:<26} {got:<44} target {target}", flush=True)


def _job(folder: Path) -> Path:
    save_tiny_at(folder=str(folder / "model"))
    row = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]}
    (folder / "rows.jsonl").write_text((json.dumps(row) + "\n") * 20, encoding="utf-8")
    file = folder / "job.json"
    job = {"model": str(folder / "model"), "data": str(folder / "rows.jsonl"), "stage": "sft"}
    file.write_text(json.dumps(job | {"train": {"max_steps": 100_000}}), encoding="utf-8")
    return file


def _submit(home: Path, job: Path, count: int) -> tuple[float, float]:
    """Wall-clock seconds of all submits, and the CPU seconds of the commands themselves."""
    began, before = time.perf_counter(), os.times()
    for number in range(count):
        rate = f"train.learning_rate={1e-5 * (1 + number)}"
        subprocess.run(
            [*FACTORY, "--home", str(home), "train", str(job), "-d", "-o", rate],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu


def _end(runs: list[Run]) -> None:
    for run in reversed(runs):
        control.stop(run, now=True)
    deadline = time.monotonic() + 120
    while any(not read_status(run).over for run in runs) and time.monotonic() < deadline:
        time.sleep(0.1)


def _make_runs(home: Path, count: int) -> None:
    job: dict[str, Any] = {"name": "sweep", "stage": {"name": "sft"}}
    for number in range(count):
        run = create_run(home, "", job, {"steps": 20})
        book = Book(run, new_record(run, job, {"steps": 20}) | {"attempt": 1})
        book.enter("queued")
        book.enter("starting", started=time.time())
        book.enter("running")
        for step in range(20):
            book.journal.append({"event": "metric", "step": step, "values": {"loss": 1.0}})
        if number % 10:  # every tenth is lost, which is the dearest to find out
            book.enter("succeeded", step=20, ended=time.time())
        book.journal.close()


def _best(words: list[str]) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([*FACTORY, *words], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _memory(pid: int) -> tuple[float, float]:
    """Resident memory of a process and the part that it shares with nobody, MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return sizes["Rss"] / 1024, (sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
