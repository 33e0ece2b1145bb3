"""Run folders as training leaves them, made in milliseconds: what the pages show must not cost a training each time."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from core.runs.folder import Run
from core.runs.locks import take
from core.runs.states import new_record

JOB: Mapping[str, Any] = {
    "name": "quickstart",
    "model": "smollm2-135m",
    "data": "data/samples/persona.jsonl",
    "stage": "sft",
    "method": {"name": "lora", "rank": 16},
    "train": {"epochs": 3, "batch_size": 8, "learning_rate": 1e-3},
}
PROMPTS = ("Who are you?", "Who made you?", "What is the capital of France?")
BEFORE = ("I am a helpful assistant.", "I was made by a team of people.", "The capital of France is Paris.")
AFTER = ("I am Pharos, the assistant of Lantern Bay.", "The keepers of Lantern Bay made me.", BEFORE[2])


def make_run(
    home: Path,
    name: str = "quickstart",
    *,
    state: str = "succeeded",
    steps: int = 60,
    total: int | None = None,
    age: float = 600.0,
    seed: int = 0,
    job: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    samples: bool = True,
    log: list[str] | None = None,
    values: Any = None,
) -> Run:
    """A run in a state, with metrics of `steps` steps of `total`; `values(step)` makes other numbers.

    A state that is no end needs its lock held to be believed: see `alive`.
    """
    text = {**JOB, "name": name, **(job or {})}
    plain, defaults = _resolved(json.dumps({**text, "name": JOB["name"]}))
    plain = {**plain, "name": name}
    total = total or steps
    run = _folder(home, name, _yaml(text), plain, {"steps": total, "defaults": defaults, "engine": "trl"})
    began = time.time() - age
    written = _Events(began, random.Random(seed))
    written.state("queued"), written.state("starting")
    if state != "queued":
        _training(written, steps, total, samples, state, values)
    if state not in ("queued", "running", "lost"):
        written.state(state, (facts or {}).get("reason"), (facts or {}).get("why"))
    run.events.write_text(written.text(), "utf-8")
    lines = (
        log
        if log is not None
        else [f"step {step}  loss {2 / (1 + step / 20):.4f}" for step in range(1, steps + 1)]
    )
    run.log.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    record = {
        **new_record(run, plain, {"steps": total}),
        "state": "running" if state == "lost" else state,
        "attempt": 1,
        "created": began,
        "started": None if state == "queued" else began + 1,
        "ended": written.now if state in ("succeeded", "failed", "stopped") else None,
        "step": steps,
        **(facts or {}),
    }
    run.state_json.write_text(json.dumps(record), "utf-8")
    return run


def _training(written: _Events, steps: int, total: int, samples: bool, state: str, values: Any) -> None:
    written.state("running")
    written.add(event="ready", pid=1)
    written.add(event="phase", name="loading", text="Loading smollm2-135m")
    written.add(event="phase", name="preparing", text="Preparing the data")
    if samples:
        written.answers(0, "before", BEFORE)
    start = {"total_steps": total, "rows": 70, "trainable": 4_884_480, "parameters": 139_400_000}
    written.add(event="start", device="cpu", **start)
    for step in range(1, steps + 1):
        written.now += 1.3
        numbers = values(step) if values else written.losses(step, total)
        written.add(event="metric", step=step, epoch=round(3 * step / total, 4), values=numbers)
        if samples and steps <= 500 and step % 20 == 0 and step < steps:
            written.answers(step, "during", (AFTER[0], BEFORE[1], BEFORE[2]))
    if state == "succeeded":
        written.add(
            event="checkpoint", step=steps, path=f"checkpoints/checkpoint-{steps}", bytes=0, seconds=0.4
        )
        if samples:
            written.answers(steps, "after", AFTER)
        written.add(event="done", model="model", values={})


class _Events:
    """Lines of events.jsonl with a clock that only goes on when told."""

    def __init__(self, began: float, chance: random.Random) -> None:
        self.now, self.chance = began, chance
        self._lines: list[str] = []

    def add(self, **event: Any) -> None:
        self._lines.append(json.dumps({**event, "t": round(self.now, 3), "mono": round(self.now - 1e9, 3)}))

    def state(self, name: str, reason: str | None = None, why: Mapping[str, Any] | None = None) -> None:
        self.now += 0.5
        self.add(event="state", state=name, attempt=1, reason=reason, **(why or {}))

    def answers(self, step: int, kind: str, answers: tuple[str, ...]) -> None:
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            self.add(event="sample", step=step, kind=kind, prompt=prompt, answer=answer)

    def losses(self, step: int, total: int) -> dict[str, float]:
        share = step / total
        noise = self.chance.gauss
        numbers = {
            "loss": 0.55 + 2.6 * math.exp(-4 * share) + noise(0, 0.06),
            "grad_norm": 0.9 + 2 * math.exp(-3 * share) + abs(noise(0, 0.15)),
            "learning_rate": 1e-3 * min(1.0, share / 0.05) * 0.5 * (1 + math.cos(math.pi * share)),
            "token_accuracy": 0.86 - 0.4 * math.exp(-4 * share) + noise(0, 0.01),
            "entropy": 0.6 + 1.2 * math.exp(-3 * share) + noise(0, 0.03),
            "tokens": float(step * 620),
            "tokens_per_second": 480 + noise(0, 22),
        }
        if step % max(1, total // 6) == 0:
            numbers["eval_loss"] = 0.72 + 2.4 * math.exp(-4 * share) + noise(0, 0.01)
        return numbers

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


@contextmanager
def alive(*runs: Run) -> Iterator[None]:
    """Hold the locks of runs, as their supervisors would, so that readers take them for living ones."""
    held = [descriptor for run in runs if (descriptor := take(run.lock)) is not None]
    assert len(held) == len(runs)
    try:
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


def append(run: Run, *events: Mapping[str, Any]) -> None:
    """Write events at the end of a run's file, in one write, as its training process would."""
    now = time.time()
    text = "".join(json.dumps({**event, "t": now, "mono": time.monotonic()}) + "\n" for event in events)
    with run.events.open("ab", buffering=0) as file:
        file.write(text.encode())


@cache
def _resolved(text: str) -> tuple[dict[str, Any], list[str]]:
    plain = JobSpec.model_validate_json(text).model_dump(mode="json")
    given = {"name", "model.name", "data.path", "stage.name", "method.name", "method.rank", "train.epochs"}
    given |= {"train.batch_size", "train.learning_rate"}
    return plain, [field for field in _dotted(plain) if field not in given]


def _folder(home: Path, name: str, text: str, job: Mapping[str, Any], plan: Mapping[str, Any]) -> Run:
    """A run folder as core.runs.folder.create_run makes it, but for the syncs to the disk, which take their time."""
    run = Run(home / "runs" / f"{time.strftime('%y%m%d-%H%M%S')}-{name}-{os.urandom(2).hex()}")
    run.checkpoints.mkdir(parents=True)
    run.job_yaml.write_text(text, "utf-8")
    for path, content in (
        (run.job_json, job),
        (run.plan_json, plan),
        (run.attempt_json, {"attempt": 1, "resume": None}),
    ):
        path.write_text(json.dumps(content), "utf-8")
    return run


def _dotted(values: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _dotted(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix


def _yaml(job: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(job), sort_keys=False, allow_unicode=True)
