"""Whether a run may go on, and with which settings: the same job, the same data, and something left to train."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.job.later import LATER, changes, told, total_steps
from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.states import Status
from data.errors import FactoryError, refuse


def resumed_job(run: Run, status: Status, job: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The job of the next attempt: the run's own, with `field=value` overrides of what may change (core/job/later.py).

    Raises FactoryError for a wrong override, for one that may not change any more, and when nothing is left to train:
    a run that has succeeded goes on only when it is made longer.
    """
    asked = dict(job)
    if overrides:
        _same_kind(run, job, overrides)
        from core.job.load import parse_job

        asked = parse_job(json.dumps(job), overrides, origin="job.json").model_dump(mode="json")
    changed = changes(job, asked)
    if refused := {name: values for name, values in changed.items() if name not in LATER}:
        raise _fixed(run, refused, overrides)
    if overrides or status.state == "succeeded":
        _something_left(run, status, job, asked, changed)
    return asked


def _same_kind(run: Run, job: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Refuse another stage or method by its name: its job has other fields, and those would be told instead."""
    refused: dict[str, tuple[Any, Any]] = {}
    for override in overrides:
        field, _, wanted = (part.strip() for part in override.partition("="))
        part = field.removesuffix(".name")
        if part in ("stage", "method") and wanted != (old := (job.get(part) or {}).get("name")):
            refused[f"{part}.name"] = (old, wanted)
    if refused:
        raise _fixed(run, refused, overrides)


def _fixed(run: Run, refused: Mapping[str, tuple[Any, Any]], overrides: Sequence[str]) -> FactoryError:
    text = (
        f"What run {run.id} has learnt so far rests on {' and '.join(refused)}, which may not change any more "
        f"({told(refused)}): start a new run with `factory train {run.job_json} -o {' -o '.join(overrides)}`."
    )
    return refuse("setting_fixed", text, field=next(iter(refused)), value=list(overrides), may_change=LATER)


def _something_left(
    run: Run,
    status: Status,
    job: Mapping[str, Any],
    asked: Mapping[str, Any],
    changed: Mapping[str, tuple[Any, Any]],
) -> None:
    done = status.state == "succeeded"
    if done and not changed:
        text = (
            f"Run {run.id} has succeeded: there is nothing to resume. `factory resume {run.id} {_longer(job)}` trains "
            f"it longer, `factory train {run.job_json}` runs the same job again."
        )
        raise refuse("run_succeeded", text, value=run.id)
    newest = checkpoints.newest_complete(run)
    if done and newest is None:
        method = (job.get("method") or {}).get("name")
        field = "model.name" if method in ("full", "freeze") else "model.adapter"
        text = (
            f"Run {run.id} has no checkpoint left to go on from: train on with its model in a new run, "
            f"`factory train {run.job_json} -o {field}={run.model}`."
        )
        raise refuse("no_checkpoint", text, value=run.id)
    step = (checkpoints.step_of(newest) if newest else None) or 0
    total = total_steps(asked, job, status.record.get("total_steps"))
    if total is not None and step >= total:
        text = (
            f"Run {run.id} has done {step:,} steps, and with {told(changed)} it has {total:,}: nothing is left to "
            f"train; make it longer, such as {_longer(job)}."
        )
        raise refuse("nothing_left", text, value=run.id, step=step, total=total)


def _longer(job: Mapping[str, Any]) -> str:
    """An option that makes a job twice as long."""
    train = job.get("train") or {}
    if train.get("max_steps"):
        return f"-o train.max_steps={2 * train['max_steps']}"
    return f"-o train.epochs={2 * (train.get('epochs') or 1):g}"


def same_job(run: Run, job: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Refuse a run whose job.json says other than its newest checkpoint, in what may not change: FactoryError."""
    newest = checkpoints.newest_complete(run)
    marker = checkpoints.marker(newest) if newest else None
    if marker is None or marker.get("job_hash") == checkpoints.job_hash(job):
        return
    found = changes(plan.get("job") or {}, job)
    changed = told({name: values for name, values in found.items() if name not in LATER}) or "a setting"
    text = (
        f"job.json of run {run.id} has changed since {newest.name if newest else ''} was made ({changed}): "
        f"undo that to resume, or start a new run with `factory train {run.job_json}`."
    )
    raise refuse("job_changed", text, value=run.id, changed=changed)


def changed_versions(plan: Mapping[str, Any], home: Path) -> str:
    """The libraries whose versions are not those of the plan, in words; empty when all are."""
    from core.engines import engine_module
    from core.job.environments import packages_of
    from core.job.machine import versions

    now = versions(packages_of(engine_module(plan.get("engine") or "trl").ENVIRONMENT, home))
    old = plan.get("versions") or {}
    return ", ".join(f"{name} {was} -> {now.get(name)}" for name, was in old.items() if now.get(name) != was)


def same_data(run: Run, plan: Mapping[str, Any]) -> None:
    """Refuse a run whose data files are gone or not what they were. Raises FactoryError."""
    import hashlib

    for file in plan.get("files") or []:
        path = Path(file["path"])
        try:
            same = path.stat().st_size == file["bytes"]
            if same:
                with path.open("rb") as content:
                    same = hashlib.file_digest(content, "sha256").hexdigest() == file["sha256"]
        except FileNotFoundError:
            text = f"The data file {path} of run {run.id} is gone: put it back to resume."
            raise refuse("data_missing", text, field="data.path", value=str(path)) from None
        if not same:
            text = (
                f"The data file {path} has changed since run {run.id} began: put the old one back to resume, "
                f"or start a new run with `factory train {run.job_json}`."
            )
            raise refuse("data_changed", text, field="data.path", value=str(path))
