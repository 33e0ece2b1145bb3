"""A checked job becomes a plan: the resolved job, the exact command, and all that makes the run repeatable."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.engines import engine_module
from core.job.choose import settled
from core.job.environments import packages_of
from core.job.forecast import Forecast, Lengths, forecast
from core.job.launcher_checks import elsewhere, machine_of
from core.job.machine import Machine, git_state, versions
from core.job.memory import PAIRS
from core.job.models import ModelPlace, locate, parameter_count
from core.job.packages import TRACKER_VARIABLES
from core.job.places import absolute
from core.job.presets import resolve
from core.job.remembered import remembered
from core.job.schedule import schedule
from core.job.shape import shape_of
from core.job.spec import JobSpec
from core.launchers import launcher_module

ENVIRONMENT = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
"""Environment variables that change what training does; a plan lists the names, never the values."""


class Counts(BaseModel):
    """The data of a job, counted with its own tokenizer by `python -m core.training.measure`."""

    model_config = ConfigDict(frozen=True)

    rows: int
    """Training sequences per epoch (packed ones when packing is on)."""
    eval_rows: int
    tokens: int
    """Tokens per epoch, padding not counted."""
    trained_tokens: int
    """Tokens per epoch that teach."""
    read: int
    """Rows read from the files."""
    dropped: int
    """Rows left out, with reasons in the report."""
    cut: int
    """Rows shortened to the stage's max_length."""
    longest: int = 0
    """Tokens of the longest sequence, before cutting."""
    findings: list[dict[str, Any]] = []

    @property
    def lengths(self) -> Lengths:
        """How long the sequences are; the tokens of a pair are those of both its answers."""
        return Lengths(self.longest, self.tokens / max(1, self.rows), self.rows, "counted")


class Plan(BaseModel):
    """What will be run. Plain data: printed by `factory plan`, kept as plan.json, read by the supervisor."""

    model_config = ConfigDict(frozen=True)

    job: dict[str, Any]
    """The resolved job, nulls kept."""
    defaults: list[str]
    """Dotted names of the fields the user did not set."""
    preset_source: str
    """Where the schedule's defaults come from."""
    engine: str
    """The engine that trains."""
    engine_reason: str | None = None
    """Why this engine, where the job says auto."""
    argv: list[str]
    """What the run's supervisor starts; the run folder becomes its last word."""
    training: list[str] = []
    """The engine's command on each machine, which `argv` is or starts; the run folder becomes its last word."""
    ending: list[str] = []
    """The command that ends what a run has on other machines; empty when its launcher has nothing there."""
    environment: list[str]
    """Names of the environment variables the training process gets, never values."""
    versions: dict[str, str | None]
    """Installed versions of the libraries that decide the numbers."""
    files: list[dict[str, Any]]
    """Every data file: path, bytes, sha256."""
    seed: int
    """Seed of everything random."""
    git: dict[str, Any] | None
    """Commit of this checkout and whether it was changed; null outside a checkout."""
    model_kind: str
    """embedded, folder or hub."""
    parameters: int | None
    """Weights of the model, from its safetensors headers; null when the files are not here yet."""
    counts: Counts | None
    """The data counted with the model's tokenizer; null when that was not asked for."""
    steps: int | None
    """Optimizer steps of the whole run; null without counts, unless train.max_steps says it."""
    warmup_steps: int | None
    """Steps of warmup, of those."""
    forecast: Forecast | None = None
    """Memory, time and disk; null when nothing of the model is here to know its size from, or
    when it runs on machines that nobody here can look at."""

    planned: list[str] = []
    """What this plan relies on and nobody has run here yet; such things are called planned, not supported."""

    @property
    def job_spec(self) -> JobSpec:
        """The resolved job as an object."""
        return JobSpec.model_validate(self.job)


def planned_things(job: JobSpec, machine: Machine) -> list[str]:
    """The parts of a job on a machine that were written after their libraries' documentation and never run."""
    things = []
    if machine.has_gpu:
        several = job.hardware.processes > 1
        things.append(f"training on {'several GPUs' if several else 'a GPU'}")
        if job.engine.name != "trl":
            things.append(f"engine {job.engine.name} on a GPU: only its way on a CPU was run")
    if getattr(job.stage, "vllm", "off") != "off":
        things.append("answers sampled by vLLM")
    return things


def make_plan(
    job: JobSpec,
    home: Path,
    machine: Machine,
    *,
    beside: Path | None = None,
    counts: Counts | None = None,
    lengths: Lengths | None = None,
) -> Plan:
    """Turn a checked job into the exact command to run it. Reads files, starts nothing.

    `beside` is the folder of the job file, against which its relative paths may be meant; `lengths` is what a look at
    the rows suggests where they are not counted. Raises FactoryError when the model or a data file is not there.
    """
    job, machine = absolute(job, beside), machine_of(job, machine)
    chosen = settled(job, machine, home, counts.lengths if counts else lengths)
    job = chosen.job if chosen else job
    place = locate(job.model.name, home, revision=job.model.revision)
    parameters = parameter_count(place)
    resolved = resolve(job, parameters=parameters, gpu=machine.has_gpu)
    steps, warmup = _steps(resolved.job, counts)
    launcher = launcher_module(job.launcher.name)
    engine = engine_module(job.engine.name)
    training = engine.plan(resolved.job, home)
    return Plan(
        job=resolved.job.model_dump(mode="json"),
        defaults=list(resolved.defaults),
        preset_source=resolved.source,
        engine=job.engine.name,
        engine_reason=chosen.reason if chosen else None,
        argv=launcher.command(training),
        training=training,
        ending=launcher.ending(),
        environment=[
            *ENVIRONMENT,
            *(name for reward in job.rewards for name in reward.secrets),
            *(name for tracker in job.report_to for name in TRACKER_VARIABLES[tracker]),
        ],
        versions=versions(packages_of(engine.ENVIRONMENT, home)),
        files=[_fingerprint(path, home) for path in data_files(resolved.job)],
        seed=job.train.seed,
        planned=[*planned_things(resolved.job, machine), *(chosen.planned if chosen else ())],
        git=git_state(),
        model_kind=place.kind,
        parameters=parameters,
        counts=counts,
        steps=steps,
        warmup_steps=warmup,
        forecast=_forecast(resolved.job, place, machine, home, counts.lengths if counts else lengths, steps),
    )


def _forecast(
    job: JobSpec, place: ModelPlace, machine: Machine, home: Path, lengths: Lengths | None, steps: int | None
) -> Forecast | None:
    shape = shape_of(place)
    if shape is None or elsewhere(job):
        return None
    return forecast(job, shape, machine, home, lengths=sequence_lengths(job, lengths), steps=steps)


def sequence_lengths(job: JobSpec, lengths: Lengths | None) -> Lengths | None:
    """Lengths of the sequences that go through the model: a counted pair is two."""
    if lengths is None or lengths.source != "counted" or job.stage.name not in PAIRS:
        return lengths
    return replace(lengths, mean=lengths.mean / 2)


def _steps(job: JobSpec, counts: Counts | None) -> tuple[int | None, int | None]:
    if counts is None and job.train.max_steps is None:
        return None, None
    lengths = schedule(job.train, counts.rows if counts else 1, processes=job.hardware.processes)
    return lengths.total_steps, lengths.warmup_steps


def data_files(job: JobSpec) -> list[Path]:
    """The local files that the job's data means, in a stable order."""
    from data.files import find_files

    plain = job.data.model_dump(mode="json")
    paths = [source.get("path") for source in plain.get("sources") or [plain]]
    paths += [plain["eval"]] if isinstance(plain.get("eval"), str) else []
    local = [path for path in paths if path and not path.startswith(("hub:", "gym:"))]
    return [file for path in local for file in find_files(path).files]


def _fingerprint(path: Path, home: Path) -> dict[str, Any]:
    def read() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    digest = remembered(home, "sha256", [path], read)  # a sweep over 10 GB of rows reads them once
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": digest}
