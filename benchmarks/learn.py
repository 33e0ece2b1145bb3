"""Every stage teaches the embedded model, SmolLM2-135M: its own measure before and after a short LoRA training.

`python benchmarks/learn.py [--stages sft dpo ...]`. Each stage is one small job through the real worker; stages that
are measured on held-out rows run once more for one step at learning rate 0, whose evaluation is the "before". The
table says whether the stage reached what it is for (the bounds stand in STAGES); CPU-seconds are those of the longer
run. Everything is made here from seeds: rows of training and held-out rows share no question.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML without a system prompt: fewer tokens to teach the same."""

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gro", "Hal", "Ida", "Jon")
PLACES = ("mill", "quay", "tower", "bay", "inn", "lock", "fort")
THINGS = ("rope", "lamp", "sail", "anchor", "buoy", "net", "oar", "crate", "map", "bell", "pump", "flag")
KEEPERS = ("Gro", "Hal", "Ida", "Jon", "Kari", "Leif", "Mona", "Nils")


def chat(asked: str, answer: str | None = None) -> list[dict[str, str]]:
    """A question, and its answer where there is one."""
    turns = [{"role": "user", "content": asked}]
    return turns if answer is None else [*turns, {"role": "assistant", "content": answer}]


def diary(first: int, last: int) -> list[dict[str, Any]]:
    """Pages of a harbour's log book, each written in the same way about other things."""
    return [
        {
            "text": f"Watch {n}. Keeper {KEEPERS[n % 8]} relieved {KEEPERS[(n * 3 + 1) % 8]} at {n % 12} bells. "
            f"Counted {2 * n} {THINGS[n % 12]}s, {3 * n} {THINGS[(n * 5 + 2) % 12]}s. Wind {n % 9} knots. "
            f"All lamps lit, none lost. Signed, {KEEPERS[n % 8]}."
        }
        for n in range(first, last)
    ]


def facts() -> list[dict[str, Any]]:
    """Twenty questions that can only be known by heart."""
    return [
        {"messages": chat(f"Where is {NAMES[n % 10]} {n // 10}?", f"At the {PLACES[(n * 3) % 7]}.")}
        for n in range(20)
    ]


def pairs(first: int, last: int) -> list[dict[str, Any]]:
    """A polite answer is better than a rude one, whatever is asked."""
    made = []
    for n in range(first, last):
        thing, place, keeper = THINGS[n % 12], PLACES[n % 7], KEEPERS[n % 8]
        polite = (
            f"Of course. The {thing} is at the {place}, {keeper} keeps it.",
            f"With pleasure: ask {keeper} for the {thing} at the {place}.",
        )
        rude = (
            f"No idea, ask {keeper} at the {place} yourself.",
            f"Go away, nobody cares about the {thing} of {keeper}.",
        )
        asked = chat(f"Where do I find {thing} number {n}?")
        made.append(
            {"prompt": asked, "chosen": chat("", polite[n % 2])[1:], "rejected": chat("", rude[n % 2])[1:]}
        )
    return made


def thumbs(first: int, last: int) -> list[dict[str, Any]]:
    """The same answers one by one."""
    return [
        {"prompt": row["prompt"], "completion": row["chosen" if good else "rejected"], "label": good}
        for row in pairs(first, last)
        for good in (True, False)
    ]


def sums(held_out: bool) -> list[dict[str, Any]]:
    """One-digit sums; a quarter of them are held out."""
    return [
        {"prompt": chat(f"{a} + {b} = ? Answer with the number only."), "answer": str(a + b)}
        for a in range(1, 10)
        for b in range(1, 10)
        if ((a + 3 * b) % 4 == 0) is held_out
    ]


@dataclass(frozen=True)
class Stage:
    """A stage's job, and what is read from its events: (measure, before, after, reached)."""

    train_rows: list[dict[str, Any]]
    held_out: list[dict[str, Any]] | None
    job: dict[str, Any]
    read: Callable[[list[dict], list[dict]], list[tuple[str, float, float, bool]]]
    compare: bool = True
    """Whether the "before" is the evaluation of a run at learning rate 0."""


def values_of(events: list[dict], name: str) -> list[float]:
    """One metric at every step that has it."""
    return [one["values"][name] for one in events if one["event"] == "metric" and name in one["values"]]


def held_out(name: str, reached: Callable[[float, float], bool]) -> Callable[..., Any]:
    """Reads an evaluation's last value of both runs."""

    def read(before: list[dict], after: list[dict]) -> list[tuple[str, float, float, bool]]:
        first, last = (values_of(events, name)[-1] for events in (before, after))
        return [(name, first, last, reached(first, last))]

    return read


def both(*readers: Callable[..., Any]) -> Callable[..., Any]:
    """Several measures of one run."""
    return lambda before, after: [line for reader in readers for line in reader(before, after)]


def exact_answers(wanted: list[str]) -> Callable[..., Any]:
    """How many prompts of `evaluate` are answered word for word, without the adapter and with it."""

    def read(_: list[dict], events: list[dict]) -> list[tuple[str, float, float, bool]]:
        right = []
        for kind in ("before", "after"):
            given = [one["answer"] for one in events if one["event"] == "sample" and one["kind"] == kind]
            right.append(sum(map(str.__eq__, given, wanted)))
        return [(f"exact answers of {len(wanted)}", right[0], right[1], right[1] == len(wanted))]

    return read


def share_right(wanted: list[str]) -> Callable[..., Any]:
    """The share of held-out prompts that are answered exactly: it must rise by 0.3."""
    count = exact_answers(wanted)

    def read(before: list[dict], events: list[dict]) -> list[tuple[str, float, float, bool]]:
        _, first, last, _ = count(before, events)[0]
        first, last = first / len(wanted), last / len(wanted)
        return [("greedy accuracy, held-out sums", first, last, last - first >= 0.3)]

    return read


def tenths(name: str, rise: float) -> Callable[..., Any]:
    """Mean of a metric over the first and the last tenth of the steps: it must rise so much."""

    def read(_: list[dict], events: list[dict]) -> list[tuple[str, float, float, bool]]:
        found = values_of(events, name)
        few = max(1, len(found) // 10)
        first, last = sum(found[:few]) / few, sum(found[-few:]) / few
        return [(f"{name}, first and last tenth", first, last, last - first >= rise)]

    return read


def bounded(name: str, limit: float) -> Callable[..., Any]:
    """A metric at its first and last step, which may not pass a limit."""

    def read(_: list[dict], events: list[dict]) -> list[tuple[str, float, float, bool]]:
        found = values_of(events, name)
        return [(f"{name}, at most {limit:g}", found[0], found[-1], max(found) <= limit)]

    return read


def online(stage: dict[str, Any], **train: Any) -> dict[str, Any]:
    """The job of a stage that samples sums."""
    return {
        "stage": stage,
        "rewards": [{"name": "accuracy", "mode": "exact"}],
        "train": {"batch_size": 32, "gradient_accumulation": 1, "scheduler": "constant", **train},
        "evaluate": {"prompts": [row["prompt"][0]["content"] for row in sums(True)], "max_new_tokens": 8},
    }


def unigram_entropy(rows: list[dict[str, Any]]) -> float:
    """Entropy in nats of the rows' tokens drawn one by one: what knowing frequencies alone can reach."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(base_folder() / "tokenizer.json"))
    ids = [token for row in rows for token in [*tokenizer.encode(row["text"]).ids, END]]
    counts = Counter(ids)
    return -sum(count / len(ids) * math.log(count / len(ids)) for count in counts.values())


END = 2
"""The end mark's id."""


def home_folder() -> Path:
    """Where runs and the unpacked model are."""
    return Path(os.environ.get("FACTORY_HOME") or Path.home() / "factory")


def base_folder() -> Path:
    """The embedded model, unpacked."""
    from core.job.spec import ModelSpec
    from core.training.model import model_folder

    return model_folder(ModelSpec(name="smollm2-135m"), home_folder())


def under_unigrams(rows: list[dict[str, Any]]) -> Callable[..., Any]:
    """The held-out loss beside the entropy of single tokens."""

    def read(before: list[dict], after: list[dict]) -> list[tuple[str, float, float, bool]]:
        limit = unigram_entropy(rows)
        first, last = (values_of(events, "eval_loss")[-1] for events in (before, after))
        return [(f"eval_loss, under the unigram entropy {limit:.2f}", first, last, last < limit)]

    return read


def stages() -> dict[str, Stage]:
    """Every stage's job and measure."""
    groups = {"num_generations": 8, "max_completion_length": 8, "max_prompt_length": 64}
    two = {"batch_size": 8, "gradient_accumulation": 1, "learning_rate": 2e-4}
    right = [row["answer"] for row in sums(True)]
    learnt = [row["messages"][1]["content"] for row in facts()]
    asked = [row["messages"][0]["content"] for row in facts()]

    def margin(rise: float) -> Callable[..., Any]:
        return both(
            held_out("eval_margin", lambda first, last: last - first > rise),
            held_out("eval_accuracy", lambda first, last: last > 0.9),
        )

    return {
        "pretrain": Stage(
            diary(0, 120),
            diary(500, 516),
            {
                "stage": {"name": "pretrain", "max_length": 256},
                "train": {**two, "batch_size": 2, "max_steps": 20},
            },
            under_unigrams(diary(500, 516)),
        ),
        "sft": Stage(
            facts(),
            None,
            {
                "stage": "sft",
                "train": {
                    "batch_size": 20,
                    "gradient_accumulation": 1,
                    "max_steps": 60,
                    "learning_rate": 1e-3,
                },
                "evaluate": {"prompts": asked, "max_new_tokens": 12},
            },
            exact_answers(learnt),
            compare=False,
        ),
        "reward": Stage(
            pairs(0, 80),
            pairs(500, 540),
            {"stage": "reward", "train": {**two, "max_steps": 20}},
            held_out("eval_accuracy", lambda first, last: last > 0.9),
        ),
        "dpo": Stage(
            pairs(0, 80), pairs(500, 540), {"stage": "dpo", "train": {**two, "max_steps": 20}}, margin(0.5)
        ),
        "orpo": Stage(
            pairs(0, 80), pairs(500, 540), {"stage": "orpo", "train": {**two, "max_steps": 30}}, margin(0.1)
        ),
        "kto": Stage(
            thumbs(0, 60),
            thumbs(500, 520),
            {"stage": "kto", "train": {**two, "max_steps": 20}},
            both(
                held_out("eval_reward/chosen", lambda first, last: last - first > 0.05),
                held_out("eval_reward/rejected", lambda first, last: first - last > 0.05),
            ),
        ),
        "grpo": Stage(
            sums(False),
            None,
            online({"name": "grpo", **groups}, max_steps=25, learning_rate=5e-4),
            both(tenths("reward/mean", 0.3), share_right(right)),
            compare=False,
        ),
        "rloo": Stage(
            sums(False),
            None,
            online({"name": "rloo", **groups, "beta": 0.0}, max_steps=25, learning_rate=5e-4),
            both(tenths("reward/mean", 0.3), share_right(right)),
            compare=False,
        ),
        # Bare right sums come once in 240 answers of the untaught model: enough for groups of eight, and nothing for
        # PPO, whose 25 updates of 32 saw none. Brevity gives every answer a score of its own.
        "ppo": Stage(
            sums(False),
            None,
            {
                "stage": {
                    "name": "ppo",
                    "max_prompt_length": 64,
                    "max_completion_length": 8,
                    "num_ppo_epochs": 2,
                    "value_learning_rate": 5e-5,
                },
                "rewards": [{"name": "length", "unit": "characters", "longest": 4, "fade": 30}],
                "train": {
                    "batch_size": 16,
                    "gradient_accumulation": 1,
                    "scheduler": "constant",
                    "max_steps": 30,
                    "learning_rate": 1e-3,
                },
                "evaluate": {"prompts": [], "max_new_tokens": 8},
            },
            both(tenths("reward/mean", 0.2), bounded("kl/answer", 20.0)),
            compare=False,
        ),
    }


def trained(job: dict[str, Any], home: Path) -> tuple[list[dict], float]:
    """Run a job's worker to its end: its events and its CPU-seconds."""
    from core.job.machine import this_machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.runs.folder import create_run

    plan = make_plan(JobSpec.model_validate(job), home, this_machine())
    made = create_run(home, "", plan.job, plan.model_dump(mode="json"))
    with made.log.open("wb") as log:
        process = subprocess.Popen(
            [*plan.argv, str(made.path)], cwd=CHECKOUT, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{made.path} failed:\n{made.log.read_text('utf-8')[-3000:]}")
    events = [json.loads(line) for line in made.events.read_text("utf-8").split("\n") if line]
    return events, usage.ru_utime + usage.ru_stime


def teach(name: str, stage: Stage, home: Path, folder: Path) -> None:
    """Train one stage and print its lines of the table."""
    data: dict[str, Any] = {"path": written(folder / f"{name}.jsonl", stage.train_rows)}
    if stage.held_out is not None:
        data["eval"] = written(folder / f"{name}-held-out.jsonl", stage.held_out)
    template = folder / "plain.jinja"
    template.write_text(TEMPLATE, "utf-8")
    steps = stage.job["train"]["max_steps"]
    train = {
        "eval_steps": steps,
        "warmup": 0.0,
        "scheduler": "linear",
        "logging_steps": 1,
        "save_steps": 100_000,
    }
    job = {
        "model": {"name": "smollm2-135m", "template": str(template)},
        "data": data,
        "method": {"name": "lora", "rank": 16},
        "evaluate": {"prompts": [], "max_new_tokens": 1},
        **stage.job,
        "train": train | stage.job["train"],
    }
    before: list[dict] = []
    if stage.compare:
        idle = job["train"] | {"learning_rate": 0.0, "max_steps": 1, "eval_steps": 1}
        before, _ = trained({**job, "train": idle}, home)
    after, spent = trained(job, home)
    for measure, first, last, reached in stage.read(before, after):
        verdict = "yes" if reached else "no"
        print(
            f"| {name} | {measure} | {first:.3f} | {last:.3f} | {verdict} | {steps} | {spent:.0f} |",
            flush=True,
        )


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    """Rows as a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def main() -> None:
    """Print the table, stage by stage."""
    known = stages()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", nargs="*", default=list(known), choices=list(known))
    options = parser.parse_args()
    home = home_folder()
    print(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}"
    )
    print("| stage | measure | before | after | reached | steps | CPU-s |\n|---|---|---:|---:|---|---:|---:|")
    with tempfile.TemporaryDirectory() as work:
        for name in options.stages:
            teach(name, known[name], home, Path(work))


if __name__ == "__main__":
    main()
