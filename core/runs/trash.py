"""The trash of a home: deleted runs and files, moved aside in one step, to be put back or emptied by their owner."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from core.runs.folder import ID, Run, deleted_runs
from core.runs.home import open_home
from core.runs.locks import is_held
from core.runs.states import read_status
from core.runs.storage import refusal, sync_folder
from data.errors import refuse


@dataclass(frozen=True)
class Thrown:
    """Something in the trash; bytes are what it takes there."""

    id: str
    path: Path
    bytes: int


def throw_away(run: Run) -> Thrown:
    """Move a run to HOME/trash/runs. Raises FactoryError while it or anything of it lives, or the disk refuses."""
    status = read_status(run)
    if not status.over:
        asked = run.stop_file.exists()
        todo = "it was asked to stop; delete it when it has" if asked else "stop it first, then delete it"
        text = f"Run {run.id} is {status.state}: {todo}."
        raise refuse("run_active", text, value=run.id, state=status.state)
    if status.orphans or is_held(run.alive):
        text = f"Processes of run {run.id} live on: end them with `factory stop {run.id}`, then delete it."
        raise refuse("run_has_orphans", text, value=run.id)
    target = _free(run.home / "trash" / "runs", run.id)
    try:
        size = folder_bytes(run.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        run.path.rename(target)
        sync_folder(run.path.parent)
    except OSError as error:
        raise refusal(error, target.parent) from error
    return Thrown(target.name, target, size)


def thrown(home: Path) -> list[Thrown]:
    """The deleted runs of a home, oldest first."""
    folder = home / "trash" / "runs"
    if not folder.is_dir():
        return []
    return [Thrown(path.name, path, folder_bytes(path)) for path in sorted(folder.iterdir()) if path.is_dir()]


def put_back(home: Path, wanted: str) -> Run:
    """Bring a deleted run back, by its id or a beginning or end of it that only one has.

    Raises FactoryError when there is none or more than one, or when its place is taken.
    """
    fits = [id for id in deleted_runs(home) if id.startswith(wanted) or id.endswith(wanted)]
    if len(fits) > 1 and wanted not in fits:
        text = (
            f"{wanted!r} fits {len(fits)} deleted runs (such as {', '.join(fits[-3:])}): give more of the id."
        )
        raise refuse("run_ambiguous", text, value=wanted[:80], count=len(fits))
    wanted = fits[0] if len(fits) == 1 and wanted else wanted
    source = home / "trash" / "runs" / wanted
    if not ID.fullmatch(wanted) or not source.is_dir():
        there = ", ".join(one.id for one in thrown(home)[-3:])
        text = f"There is no deleted run {wanted[:80]!r}" + (
            f"; there are {there}." if there else ": the trash is empty."
        )
        raise refuse("trash_not_found", text, value=wanted[:80])
    run = Run(home / "runs" / wanted)
    if run.path.exists():
        text = f"There is a run {wanted} again, so the deleted one stays in {source}."
        raise refuse("restore_in_the_way", text, value=wanted)
    open_home(home, force=True)
    try:
        run.path.parent.mkdir(parents=True, exist_ok=True)
        source.rename(run.path)
        sync_folder(run.path.parent)
    except OSError as error:
        raise refusal(error, run.path.parent) from error
    return run


def empty(home: Path) -> int:
    """Delete for good what is in the trash; how many bytes that freed. Raises FactoryError."""
    folder = home / "trash"
    if not folder.is_dir():
        return 0
    size = folder_bytes(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise refusal(error, folder) from error
    return size


def folder_bytes(folder: Path) -> int:
    """Bytes of the files under a folder; links count for nothing, and what vanishes meanwhile is left out."""
    total = 0
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
        except OSError:
            continue
        total += found.st_size if path.is_file() and not path.is_symlink() else 0
    return total


def _free(folder: Path, name: str) -> Path:
    """A name in the folder that nothing has: an id could be deleted, restored by hand, and deleted again."""
    target = folder / name
    return target if not target.exists() else folder / f"{name}.{time.time_ns()}"
