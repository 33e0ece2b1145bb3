"""How a plan reads in a terminal: what will be done, every setting with defaults marked, the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from core.cli.show import duration, finding_lines, pairs, table
from core.job.forecast import Forecast
from core.job.memory import PARTS
from core.job.plan import Plan
from core.launchers import launcher_module
from data.errors import Finding
from data.words import byte_size


def plan_text(plan: Plan, findings: Sequence[Finding] = ()) -> str:
    """A plan as aligned text, for people, with what is worth telling about it.

    With an error among the findings they are left to the caller, and there is no command: it would fail.
    """
    wrong = any(one.level == "error" for one in findings)
    sections = [
        pairs(dict(_summary(plan))),
        "Settings (· holds its default, presets from " + plan.preset_source + ")\n" + _settings(plan),
        *([] if wrong or not findings else ["\n".join(finding_lines(findings))]),
        *(["Planned, not run by us yet\n  " + "; ".join(plan.planned)] if plan.planned else []),
        *_forecast(plan),
        *([] if wrong else [_command(plan)]),
        *_steps(plan),
    ]
    return "\n\n".join(sections)


def _summary(plan: Plan) -> Iterator[tuple[str, str]]:
    job, counts = plan.job, plan.counts
    size = f", {plan.parameters:,} weights" if plan.parameters else ""
    yield "model", f"{job['model']['name']} ({plan.model_kind}{size})"
    for file in plan.files:
        yield "data", f"{file['path']} ({byte_size(file['bytes'])}, sha256 {file['sha256'][:12]})"
    yield (
        "training",
        f"{job['stage']['name']}, {job['method']['name']}, engine {plan.engine}, seed {plan.seed}",
    )
    if job["hardware"]["strategy"] not in (None, "none"):
        yield "processes", _processes(plan)
    if plan.engine_reason:
        yield "engine", plan.engine_reason.removeprefix("engine ")
    if counts:
        yield "rows", f"{counts.read:,} read, {counts.dropped:,} left out, {counts.cut:,} cut at max_length"
        held_out = f", {counts.eval_rows:,} held out" if counts.eval_rows else ""
        yield "sequences", f"{counts.rows:,} per epoch{held_out}"
        yield "tokens", f"{counts.tokens:,} per epoch, {counts.trained_tokens:,} of them teach"
    if plan.steps is not None:
        warmup = f", {plan.warmup_steps:,} of them warmup" if plan.warmup_steps else ""
        yield "steps", f"{plan.steps:,}{warmup}"


def _processes(plan: Plan) -> str:
    """How many processes share the work, how, and what that makes of the batch."""
    hardware, train = plan.job_spec.hardware, plan.job_spec.train
    where = (
        f"{hardware.nodes} machines with {hardware.per_node} each" if hardware.nodes > 1 else "this machine"
    )
    rows, times = train.batch_size or 1, train.gradient_accumulation or 1
    return (
        f"{hardware.processes} on {where}, {hardware.sharing}; a step takes {rows * times * hardware.processes:,} rows "
        f"({rows} x accumulation {times} x {hardware.processes})"
    )


def _command(plan: Plan) -> str:
    return "Command\n  " + shlex.join([*(plan.training or plan.argv), "RUN_FOLDER"])


def _steps(plan: Plan) -> Iterator[str]:
    """What the launcher makes of the command; a batch script is worth reading where no cluster is, too."""
    for title, text in launcher_module(plan.job["launcher"]["name"]).steps(plan.job_spec, plan.training):
        yield f"{title}\n" + "\n".join(f"  {line}" for line in text.splitlines())


_SOURCES = {
    "counted": "row lengths counted",
    "estimated": "row lengths estimated from the first rows",
    "longest": "as if every row were as long as it may be",
}


def _forecast(plan: Plan) -> Iterator[str]:
    """What it will take: memory by part, time, disk."""
    told = plan.forecast
    if told is None and plan.job["launcher"]["name"] == "slurm":
        yield "Forecast\n  unknown: nobody here can look at the cluster's machines"
        return
    if told is None:
        yield "Forecast\n  unknown: nothing of the model is on this machine yet to know its size from"
        return
    where = "the CPU" if told.device == "cpu" else told.device
    source = "measured with one real step" if told.measured else _SOURCES[told.lengths]
    needed = (
        f"{byte_size(told.memory_total)} of {byte_size(told.available)} on {where}: {told.verdict} ({source})"
    )
    moment = "" if told.measured else f", fullest while {_MOMENTS.get(told.moment, told.moment)}"
    lines = [f"Forecast{moment}"]
    rows = [(PARTS[name], byte_size(size)) for name, size in told.memory.items() if size and name in PARTS]
    rows.append(("memory", needed))
    if told.host:
        rows.append(
            ("beside", f"{byte_size(told.host)} of {byte_size(told.host_available)} in the machine's memory")
        )
    lines += ["  " + line for line in table(rows).splitlines()]
    facts = {"time": _time(told), "disk": _disk(told)}
    if told.change:
        facts["to fit"] = "  ".join(f"-o {name}={_shown(value)}" for name, value in told.change.items())
    lines += ["  " + line for line in pairs(facts).splitlines()]
    yield "\n".join(lines)


_MOMENTS = {"forward": "a batch goes forward", "backward": "gradients are made"}


def _time(told: Forecast) -> str:
    if told.seconds is None:
        return "unknown until the rows are counted"
    if told.measured:
        return f"about {duration(told.seconds)}, from one real step"
    runs = f"from {told.runs} finished {'run' if told.runs == 1 else 'runs'} here"
    return f"about {duration(told.seconds)}, {runs if told.runs else 'a guess: no such run has finished here yet'}"


def _disk(told: Forecast) -> str:
    return (
        f"{byte_size(told.disk_bytes)} at its fullest (a checkpoint {byte_size(told.checkpoint_bytes)}, "
        f"the model {byte_size(told.model_bytes)})"
    )


def _settings(plan: Plan) -> str:
    defaults = set(plan.defaults)
    fields = list(_fields(plan.job, ""))
    shown = [(name, value) for name, value in fields if value not in (None, [], "")]
    rows = [("·" if name in defaults else " ", name, _shown(value)) for name, value in shown]
    lines = ["  " + line for line in table(rows).splitlines()]
    if len(shown) < len(fields):
        lines.append(f"     {len(fields) - len(shown)} settings more, all empty; --json shows them")
    return "\n".join(lines)


def _fields(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for place, one in enumerate(value):
                yield from _fields(one, f"{prefix}{key}[{place}].")
        elif prefix + key != "schema_version":
            yield prefix + key, value


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)
