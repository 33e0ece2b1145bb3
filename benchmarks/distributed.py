"""Two processes beside one, one thread each, at the same effective batch; and our launch beside plain torchrun's.

`python -m benchmarks.distributed [--rounds 3] [--steps 12] [--method full]` on a random Llama over made
rows. Rounds alternate, so that a noisy machine hits both. Wall-clock tokens a second are only worth something on a
machine whose two cores are free; CPU-seconds for a token are not touched by other work: twice those of one process by
those of both is what two free cores would give.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
MODULE = "benchmarks.distributed"


def middle(folder: Path) -> str:
    """A random Llama of 3.3 M weights with its tokenizer."""
    from tests.tiny import tiny_model, tiny_tokenizer

    tiny_model(layers=4, hidden=256).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def rows(path: Path) -> str:
    """Chats of about 200 tokens."""
    words = "the harbour light turns slowly over grey water while small boats come home with the tide".split()
    with path.open("w", encoding="utf-8") as file:
        for number in range(256):
            text = " ".join(words[(number * 7 + place) % len(words)] for place in range(50 + number % 20))
            turns = [{"role": "user", "content": f"Write {number}."}, {"role": "assistant", "content": text}]
            file.write(json.dumps({"messages": turns}) + "\n")
    return str(path)


def train(model: str, data: str, method: str, steps: int, processes: int, home: Path) -> tuple[float, float]:
    """One training: tokens a second over all steps but the first, and CPU-seconds for a thousand of its tokens."""
    from core.job.machine import Machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.runs.folder import create_run

    job: dict[str, Any] = {
        "model": model,
        "data": data,
        "stage": "sft",
        "method": method,
        "hardware": {"devices": processes},
        "train": {
            "max_steps": steps,
            "batch_size": 4,
            "gradient_accumulation": 2 // processes,
            "logging_steps": 1,
            "save_steps": 10_000,
        },
        "evaluate": {"prompts": ["Hi?"], "max_new_tokens": 1},
    }
    machine = Machine("benchmark", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    plan = make_plan(JobSpec.model_validate(job), home, machine)
    run = create_run(home, json.dumps(job), plan.job, plan.model_dump(mode="json"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with run.log.open("ab") as log:
        subprocess.run(
            [*plan.argv, str(run.path)], cwd=CHECKOUT, env=environment(), stdout=log, stderr=log, check=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    records = [json.loads(line) for line in run.events.read_text("utf-8").split("\n") if line]
    metrics = [one for one in records if one["event"] == "metric" and "loss" in one["values"]]
    tokens = metrics[-1]["values"]["tokens"] - metrics[0]["values"]["tokens"]
    seconds = metrics[-1]["mono"] - metrics[0]["mono"]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return tokens / seconds, used


def environment() -> dict[str, str]:
    """One thread each, asleep while it waits."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(CHECKOUT)}


def launched(ours: bool, folder: Path) -> tuple[float, float, float]:
    """Seconds from the command to the first line of the last of two processes, after it to the end; CPU-seconds."""
    folder.mkdir()
    (folder / "attempt.json").write_text('{"attempt": 1, "resume": null}', "utf-8")
    launcher = "core.training.ranks" if ours else "torch.distributed.run"
    argv = [sys.executable, "-m", launcher, "--standalone", "--nproc-per-node", "2", "-m", MODULE, "--rank"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    quiet = subprocess.DEVNULL
    subprocess.run(
        [*argv, str(folder)], cwd=CHECKOUT, env=environment(), stdout=quiet, stderr=quiet, check=True
    )
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times = [float((folder / f"time-{rank}").read_text("utf-8")) for rank in (0, 1)]
    return max(times) - began, ended - max(times), used


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--method", default="full")
    parser.add_argument("--launches", action="store_true", help="Only compare launches.")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:  # one of the processes whose start is measured
        (options.rank / f"time-{os.environ['RANK']}").write_text(str(time.time()), "utf-8")
        return
    print(f"load before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    with tempfile.TemporaryDirectory(prefix="factory-") as folder:
        if not options.launches:
            compare_steps(options, Path(folder))
        compare_launches(options.rounds, Path(folder))


def compare_steps(options: argparse.Namespace, folder: Path) -> None:
    """The table of tokens a second. CPU-seconds of the start are taken out by a second run of fewer steps."""
    model, data = middle(folder / "model"), rows(folder / "rows.jsonl")
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for number in range(options.rounds):
        for processes in (1, 2):
            long = train(model, data, options.method, options.steps, processes, folder / f"home-{number}")
            short = train(model, data, options.method, 2, processes, folder / f"home-{number}")
            found[processes].append((long[0], (long[1] - short[1]) / (options.steps - 2)))
            print(
                f"  round {number + 1}, {processes}: {long[0]:,.0f} tokens/s, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    speed = {count: statistics.median(one[0] for one in values) for count, values in found.items()}
    used = {count: statistics.median(one[1] for one in values) for count, values in found.items()}
    print("| processes | tokens/s | CPU-seconds a step |\n|---|---:|---:|")
    for count in (1, 2):
        print(f"| {count} | {speed[count]:,.0f} | {used[count]:.2f} |")
    print(f"tokens/s, two beside one: {speed[2] / speed[1]:.2f}; by CPU-seconds: {2 * used[1] / used[2]:.2f}")


def compare_launches(rounds: int, folder: Path) -> None:
    """The table of launches."""
    found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    for number in range(max(3, rounds)):
        for ours in (False, True):
            found[ours].append(launched(ours, folder / f"launch-{number}-{ours}"))
    print("| launch | seconds to the first line | seconds after it | CPU-seconds |\n|---|---:|---:|---:|")
    for ours, name in ((False, "torchrun"), (True, "core.training.ranks")):
        start, end, used = (statistics.median(one[place] for one in found[ours]) for place in (0, 1, 2))
        print(f"| {name} | {start:.2f} | {end:.2f} | {used:.2f} |")


if __name__ == "__main__":
    main()
