"""One run with everything that is no event, and several runs beside each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.journal import parse, read_lines
from core.runs.states import read_status
from core.runs.storage import read_json
from core.runs.trash import folder_bytes
from webui.api.lines import size_of
from webui.api.numbers import last_values
from webui.api.shown import row_of

FILES = {
    "log": "log.txt",
    "job": "job.yaml",
    "json": "job.json",
    "plan": "plan.json",
    "events": "events.jsonl",
}
"""What can be downloaded of a run, by the word in the address."""
MOST_SAMPLES = 50


def detail(run: Run) -> dict[str, Any]:
    """The answer of GET /api/runs/{id}."""
    follow = size_of(run.events)  # before the rest is read: a stream from here on misses nothing
    status = read_status(run)
    plan, job = _read(run.plan_json), _read(run.job_json)
    whole = checkpoints.complete(run)
    return {
        **row_of(run, status),
        "yaml": _text(run.job_yaml),
        "job": job,
        "plan": plan,
        "defaults_changed": changed(job, plan),
        "checkpoints": _checkpoints(run, whole),
        "follow_offset": follow,
        "log_size": size_of(run.log),
        "bytes": folder_bytes(run.path),
        "files": [
            {"name": name, "file": file, "bytes": size_of(run.path / file)}
            for name, file in FILES.items()
            if (run.path / file).is_file()
        ],
        "grace_until": status.record.get("grace_until"),
        "model_bytes": folder_bytes(run.model) if checkpoints.is_complete(run.model) else None,
        "values": status.record.get("values"),
        "peak_bytes": status.record.get("peak_bytes"),
    }


def changed(job: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted fields that the user set, with their values."""
    defaults = set(plan.get("defaults") or ())
    return {
        name: value for name, value in fields(job) if name not in defaults and value not in (None, [], {})
    }


def fields(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and plain values of a job; lists of parts by their place."""
    if isinstance(values, Mapping) and values:
        for key, value in values.items():
            yield from fields(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(values, list) and values and isinstance(values[0], Mapping):
        for place, value in enumerate(values):
            yield from fields(value, f"{prefix}[{place}]")
    else:
        yield prefix, values


def compared(runs: list[Run]) -> dict[str, Any]:
    """The answer of GET /api/compare."""
    told = {run.id: dict(fields(_read(run.job_json))) for run in runs}
    names = list(
        dict.fromkeys(name for one in told.values() for name in one if name not in ("name", "schema_version"))
    )
    differing, same = [], {}
    for name in names:
        values = {id: one.get(name) for id, one in told.items()}
        texts = {json.dumps(value, sort_keys=True, default=str) for value in values.values()}
        if len(texts) > 1:
            differing.append({"key": name, "values": values})
        else:
            same[name] = next(iter(values.values()))
    last = {run.id: last_values(run) for run in runs}
    metrics = list(dict.fromkeys(name for one in last.values() for name in one))
    return {
        "runs": [row_of(run, read_status(run)) for run in runs],
        "differing": differing,
        "same_count": len(same),
        "same": same,
        "final": {name: {id: one.get(name) for id, one in last.items()} for name in metrics},
        "samples": _samples(runs),
    }


def _samples(runs: list[Run]) -> list[dict[str, Any]]:
    """Prompts with the last answer of each run, those first that more runs answered."""
    answers: dict[str, dict[str, Any]] = {}
    for run in runs:
        for event in _events(run, b'"sample"'):
            prompt, answer = event.get("prompt"), event.get("answer")
            if event.get("event") == "sample" and isinstance(prompt, str) and isinstance(answer, str):
                kind = "before" if event.get("kind") == "before" else "last"
                slot = answers.setdefault(prompt, {}).setdefault(run.id, {})
                slot[kind] = {
                    "answer": answer,
                    "step": event.get("step"),
                    "scores": event.get("scores") or {},
                }
    order = sorted(answers.items(), key=lambda one: -len(one[1]))
    return [{"prompt": prompt, "answers": by_run} for prompt, by_run in order[:MOST_SAMPLES]]


def _checkpoints(run: Run, whole: list[Path]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for folder in whole:
        marker = checkpoints.marker(folder) or {}
        values = marker.get("values") or {}
        found.append(
            {
                "step": checkpoints.step_of(folder),
                "path": folder.relative_to(run.path).as_posix(),
                "bytes": sum(size for size in marker["files"].values() if isinstance(size, int)),
                "eval_loss": values.get("eval_loss"),
                "values": values,
                "best": False,
                "pinned": (folder / checkpoints.PIN).exists(),
            }
        )
    rated = [one for one in found if isinstance(one["eval_loss"], (int, float))]
    if rated:
        min(rated, key=lambda one: one["eval_loss"])["best"] = True
    return found


def _events(run: Run, mark: bytes) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        lines, reached = read_lines(run.events, offset)
        for line in lines:
            if mark in line.content and (record := parse(line.content)) is not None:
                yield record
        if reached == offset:
            return
        offset = reached


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
