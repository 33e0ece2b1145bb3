"""python -m tests.gpu [--dry] [--only NAME ...] [--model MODEL] [--home FOLDER]: the cases on this machine, a table.

Before it: factory env install unsloth (and deepspeed, vllm where their cases are wanted). A case that cannot run here
says why and counts as refused; a case that fails makes the exit code 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core.cli.show import table
from core.job.machine import Gpu, Machine, this_machine
from data.words import byte_size
from tests.gpu.cases import CASES, Case, write_data
from tests.gpu.measure import Measured, planned, run

GIB = 2**30
DESCRIBED = Machine(
    "Linux",
    "3.11",
    cores=16,
    memory=128 * GIB,
    memory_free=120 * GIB,
    gpus=tuple(Gpu(number, "described GPU", 80 * GIB, 80 * GIB, 9.0, "1") for number in range(2)),
)
"""The machine of a dry run: two GPUs of 80 GiB."""


def main(words: Sequence[str]) -> int:
    """Run what was asked for; 1 when a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument(
        "--dry", action="store_true", help="build, check and print; start nothing, need no GPU"
    )
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], metavar="NAME")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args(words)
    cases = [case for case in CASES if not asked.only or case.name in asked.only]
    with tempfile.TemporaryDirectory(prefix="factory-gpu-") as folder:
        home = asked.home or Path(folder) / "home"
        home.mkdir(parents=True, exist_ok=True)
        data = write_data(Path(folder) / "rows")
        if asked.dry:
            return _dry(cases, asked.model, data, home)
        return _really(cases, asked.model, data, home)


def _dry(cases: Sequence[Case], model: str, data: dict[str, str], home: Path) -> int:
    sys.stdout.write("Dry run on a described machine with 2 GPUs of 80 GiB: nothing is started.\n")
    for case in cases:
        findings, command = planned(case, model, data, DESCRIBED, home)
        sys.stdout.write(f"\n{case.name}: {case.shows}\n  {shlex.join([*command, 'RUN_FOLDER'])}\n")
        for one in findings:
            if one.level == "error":
                sys.stdout.write(f"  needs  {one.message}\n")
    return 0


def _really(cases: Sequence[Case], model: str, data: dict[str, str], home: Path) -> int:
    machine = this_machine()
    if not machine.gpus:
        sys.stderr.write(
            "This machine has no GPU; python -m tests.gpu --dry shows what would be run on one.\n"
        )
        return 2
    rows, bad = [], 0
    for case in cases:
        if case.gpus > len(machine.gpus):
            done = Measured("refused", reason=f"it needs {case.gpus} GPUs")
        else:
            done = run(case, model, data, home)
        bad += done.state not in ("succeeded", "refused")
        rows.append(_row(case, done))
        sys.stdout.write("  ".join(rows[-1]) + "\n")
        sys.stdout.flush()
    head = ("case", "tokens/s", "peak memory", "loss", "seconds", "")
    sys.stdout.write("\n" + table(rows, head, right=(1, 2, 4)) + "\n")
    return 1 if bad else 0


def _row(case: Case, done: Measured) -> tuple[str, ...]:
    return (
        case.name,
        "-" if done.tokens_per_second is None else f"{done.tokens_per_second:,.0f}",
        "-" if done.peak is None else byte_size(done.peak),
        "-" if done.losses is None else f"{done.losses[0]:.4f} -> {done.losses[1]:.4f}",
        "-" if done.seconds is None else f"{done.seconds:.0f}",
        done.state + (f": {done.reason}" if done.reason else ""),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
