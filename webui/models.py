"""The models on this machine: bases, adapters and results of runs, with their size and where they come from."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.job.models import EMBEDDED, hub_cache
from core.runs import checkpoints
from core.runs.folder import Run, list_runs
from core.runs.states import read_status
from core.runs.storage import read_json, refusal, sync_folder
from core.runs.trash import folder_bytes
from data.errors import refuse
from webui.settings import Settings


def all_models(settings: Settings) -> list[dict[str, Any]]:
    """Every model: embedded ones, folders of HOME/models, the hub's cache, and what runs delivered, newest first."""
    bases = [*_embedded(settings), *_folders(settings), *_cached()]
    results = sorted(_results(settings), key=lambda one: -(one["created"] or 0))
    return [*results, *bases]


def delete(settings: Settings, id: str) -> dict[str, Any]:
    """Move a model to the trash of the home; a run's model leaves the run. Raises FactoryError."""
    row = next((one for one in all_models(settings) if one["id"] == id), None)
    if row is None:
        raise refuse(
            "model_row_not_found", f"There is no model {id[:80]!r}; it may have been deleted.", value=id[:80]
        )
    if not row["deletable"]:
        text = f"{row['name']} is not the board's to delete: it belongs to its package, or lies in the hub's cache."
        raise refuse("model_not_deletable", text, value=row["name"])
    path = Path(row["where"]) if not row.get("folder") else Path(row["folder"])
    if users := _live_users(settings, path):
        text = f"{row['name']} is in use by run {users[0]}: stop the run first, or let it end."
        raise refuse("model_in_use", text, value=row["name"], runs=users)
    trash = settings.home / "trash" / "models"
    target = trash / f"{time.time_ns()}-{row['from_run'] or path.name}"
    try:
        trash.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        sync_folder(path.parent)
    except OSError as error:
        raise refusal(error, trash) from error
    return {"id": id, "bytes": row["bytes"], "trash": str(target)}


def _embedded(settings: Settings) -> Iterator[dict[str, Any]]:
    for name, model in EMBEDDED.items():
        unpacked = settings.home / "models" / name
        here = unpacked.is_dir()
        yield {
            **_row("base", name, name, folder_bytes(unpacked) if here else 0, deletable=here),
            "parameters": model.parameters,
            "licence": model.licence,
            "note": "embedded",
            "folder": str(unpacked) if here else None,
        }


def _folders(settings: Settings) -> Iterator[dict[str, Any]]:
    folder = settings.home / "models"
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in EMBEDDED or path.is_symlink() or not path.is_dir():
            continue
        adapter = (path / "adapter_config.json").is_file()
        if adapter or (path / "config.json").is_file():
            kind = "adapter" if adapter else "base"
            yield {
                **_row(kind, path.name, str(path), folder_bytes(path)),
                "base": _base(path),
                "created": _time(path),
            }


def _cached() -> Iterator[dict[str, Any]]:
    cache = hub_cache()
    if not cache.is_dir():
        return
    for path in sorted(cache.glob("models--*--*")):
        name = path.name.removeprefix("models--").replace("--", "/", 1)
        if path.is_dir() and any(path.glob("snapshots/*/config.json")):
            yield {
                **_row("base", name, name, folder_bytes(path), deletable=False),
                "note": "hub",
                "created": _time(path),
            }


def _results(settings: Settings) -> Iterator[dict[str, Any]]:
    for run in list_runs(settings.home):
        found = checkpoints.marker(run.model)
        if found is None:
            continue
        adapter = (run.model / "adapter_config.json").is_file()
        size = sum(one for one in found["files"].values() if isinstance(one, int))
        record = _record(run)
        name = record.get("name") or run.id
        yield {
            **_row("adapter" if adapter else "result", str(name), str(run.model), size),
            "from_run": run.id,
            "stage": record.get("stage"),
            "base": _base(run.model) if adapter else None,
            "created": _time(run.model / checkpoints.MARKER),
        }


def _row(kind: str, name: str, where: str, size: int, *, deletable: bool = True) -> dict[str, Any]:
    """A row; its id stands in an address, so it is made of letters that mean nothing there."""
    id = base64.urlsafe_b64encode(where.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    row: dict[str, Any] = {
        "id": id,
        "name": name,
        "kind": kind,
        "where": where,
        "bytes": size,
        "from_run": None,
    }
    return {**row, "base": None, "created": None, "deletable": deletable}


def _base(folder: Path) -> str | None:
    try:
        config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(base, str):
        return None
    return Path(base).name if Path(base).name in EMBEDDED else base


def _record(run: Run) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(run.state_json)
        if isinstance(found, dict):
            return found
    return {}


def _time(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _live_users(settings: Settings, path: Path) -> list[str]:
    """Runs that are not over and whose job names the model, or that make it."""
    found = []
    for run in list_runs(settings.home):
        with contextlib.suppress(OSError, ValueError):
            if not read_status(run).over and (
                path.is_relative_to(run.path) or _names(read_json(run.job_json), path)
            ):
                found.append(run.id)
    return found


def _names(job: Any, path: Path) -> bool:
    """Whether any text of a job is the path, or the embedded model unpacked there."""
    if isinstance(job, dict):
        return any(_names(one, path) for one in job.values())
    if isinstance(job, list):
        return any(_names(one, path) for one in job)
    return isinstance(job, str) and (job == str(path) or (job in EMBEDDED and path.name == job))
