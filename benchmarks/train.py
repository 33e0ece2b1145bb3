"""Our training process beside a hand-written trl script, in the same run: useful tokens a second, start, peak memory.

`python benchmarks/train.py [--rounds 2] [--steps 12] [--batch 4] [--alpaca FILE]` with the embedded model and LoRA.
Rounds alternate, so that a noisy machine hits both; the table gives medians and ratios (ours / theirs). CPU-seconds
count from the first step's end to the last one's; other work on the machine is not in them. Without --alpaca the rows
are made here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Measured:
    """One training: tokens per second from first to last step, seconds to the first, peak memory, losses."""

    tokens_per_cpu_second: float
    tokens_per_second: float
    first_step: float
    total: float
    peak_gib: float
    losses: list[float]


def rows(count: int) -> list[dict]:
    """Chats with the lengths of real instruction files: half of the answers under 60 words, one in twenty over 250.

    Drawn evenly on a logarithmic scale from a fixed seed. Padding makes batches of four 1.5 to 1.8 times as large in
    the real files looked at (alpaca, code alpaca), and 1.7 times here.
    """
    words = "the harbour light turns slowly over grey water while small boats come home with the tide".split()
    pick = random.Random(7)
    made = []
    for number in range(count):
        length = round(12 * math.exp(pick.random() * math.log(25)))
        text = " ".join(words[(number + place) % len(words)] for place in range(length))
        asked = " ".join(pick.choices(words, k=pick.randint(2, 25)))
        question = {"role": "user", "content": f"Write {length} words about harbour {number}: {asked}."}
        made.append({"messages": [question, {"role": "assistant", "content": text}]})
    return made


def alpaca(path: Path) -> list[dict]:
    """The chats of a file in Alpaca's shape (a JSON list of instruction, input, output)."""
    made = []
    for row in json.loads(path.read_text("utf-8")):
        asked = "\n".join(part for part in (row["instruction"], row.get("input")) if part)
        turns = [("user", asked), ("assistant", row["output"])]
        made.append({"messages": [{"role": role, "content": content} for role, content in turns]})
    return made


def run(argv: list[str], log: Path) -> tuple[float, float, float]:
    """Run a command to its end: start (seconds since 1970), duration in seconds, peak resident memory in GiB."""
    began = time.time()
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=CHECKOUT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{argv} failed:\n{log.read_text('utf-8')[-2000:]}")
    return began, time.time() - began, usage.ru_maxrss / 2**20


def measure(began: float, total: float, peak: float, records: list[dict]) -> Measured:
    """Figures of one training from its per-step records (t, step, loss, tokens)."""
    first, last = records[0], records[-1]
    taught, clock = last["tokens"] - first["tokens"], last["t"] - first["t"]
    per_cpu = taught / (last["cpu"] - first["cpu"])
    return Measured(
        per_cpu, taught / clock, first["t"] - began, total, peak, [record["loss"] for record in records]
    )


def ours(model: str, data: str, trainer: dict, folder: Path) -> Measured:
    """The job through our worker, started as the supervisor starts it."""
    from core.job.machine import this_machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.runs.folder import create_run

    template = folder / "template.jinja"
    template.write_text(TEMPLATE, "utf-8")
    job = JobSpec.model_validate(
        {
            "model": {"name": model, "template": str(template)},
            "data": data,
            "stage": "sft",
            "train": {
                "batch_size": trainer["per_device_train_batch_size"],
                "gradient_accumulation": trainer["gradient_accumulation_steps"],
                "max_steps": trainer["max_steps"],
                "learning_rate": trainer["learning_rate"],
                "scheduler": "linear",
                "warmup": 0.0,
                "logging_steps": 1,
                "save_steps": 1_000_000,
            },
            "evaluate": {"max_new_tokens": 1},
        }
    )
    home = folder / "home"
    plan = make_plan(job, home, this_machine())
    made = create_run(home, "", plan.job, plan.model_dump(mode="json"))
    log = folder / "ours.log"
    worker = str(CHECKOUT / "benchmarks" / "worker_cpu.py")
    began, total, peak = run([sys.executable, worker, str(made.path)], log)
    return measure(began, total, peak, records_of(log))


def records_of(log: Path) -> list[dict]:
    """What a training printed at its steps."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.startswith('{"t"')]


def theirs(model: str, data: str, trainer: dict, folder: Path) -> Measured:
    """The same through the hand-written script."""
    settings = folder / "settings.json"
    values = {
        "model": model,
        "data": data,
        "out": str(folder / "out"),
        "template": TEMPLATE,
        "trainer": trainer,
    }
    settings.write_text(json.dumps(values), "utf-8")
    log = folder / "theirs.log"
    began, total, peak = run(
        [sys.executable, str(CHECKOUT / "benchmarks" / "plain_trl.py"), str(settings)], log
    )
    return measure(began, total, peak, records_of(log))


def report(found: dict[str, list[Measured]]) -> None:
    """Print medians of both and their ratio, and whether the losses agree."""
    print(f"{'':24}{'ours':>10}{'trl script':>12}{'ratio':>8}")
    for label, field in (
        ("tokens a CPU-second", "tokens_per_cpu_second"),
        ("tokens a second", "tokens_per_second"),
        ("start to first step, s", "first_step"),
        ("whole process, s", "total"),
        ("peak memory, GiB", "peak_gib"),
    ):
        mine, peer = (
            statistics.median(getattr(one, field) for one in found[name]) for name in ("ours", "theirs")
        )
        print(f"{label:24}{mine:10.2f}{peer:12.2f}{mine / peer:8.3f}")
    pairs = zip(found["ours"][0].losses, found["theirs"][0].losses, strict=True)
    print(f"largest relative difference of a loss: {max(abs(a - b) / b for a, b in pairs):.1e}")


def main() -> None:
    """Alternate both trainings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--alpaca", type=Path, help="a JSON list of instruction, input, output")
    options = parser.parse_args()
    from core.job.spec import ModelSpec
    from core.training.model import model_folder

    base = Path(os.environ.get("FACTORY_HOME") or Path.home() / "factory")
    model = str(model_folder(ModelSpec(name="smollm2-135m"), base))
    trainer = {
        "per_device_train_batch_size": options.batch,
        "gradient_accumulation_steps": 1,
        "max_steps": options.steps,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
    }
    chats = alpaca(options.alpaca) if options.alpaca else rows(400)
    found: dict[str, list[Measured]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in chats), "utf-8")
        for number in range(options.rounds):
            for name, train in (("ours", ours), ("theirs", theirs)):
                folder = Path(work) / f"{name}-{number}"
                folder.mkdir()
                found[name].append(train(model, str(data), trainer, folder))
    report(found)


if __name__ == "__main__":
    main()
