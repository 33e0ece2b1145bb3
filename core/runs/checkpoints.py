"""Checkpoints that are whole or are none: a marker after fsync, our own newest, our own retention.

transformers writes straight into checkpoint-N and takes the highest N for the newest, whole or not. Here a
folder counts only when its COMPLETE.json, written last, names every file with its size. Stdlib only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.job.later import fixed
from core.runs.folder import Run
from core.runs.storage import read_json, sync_file, sync_folder, write_json

MARKER = "COMPLETE.json"
PIN = "PINNED"
"""An empty file of this name in a checkpoint keeps it for good; only its user puts it there and takes it away."""
IN_USE = "IN_USE"
"""An empty file of this name keeps a checkpoint while somebody reads it."""
SPARE = 1 << 30
"""Bytes that stay free beside what a save needs, for logs, events and everyone else on the disk; the environment
variable FACTORY_DISK_SPARE sets another number."""


@dataclass(frozen=True)
class Room:
    """Whether something fits on the disk; true when it does. Bytes."""

    free: int
    needed: int

    def __bool__(self) -> bool:
        return self.free >= self.needed


def job_hash(job: Mapping[str, Any]) -> str:
    """A fingerprint of what is trained: the resolved job without what a resumed run may change (16 hex digits)."""
    import hashlib  # OpenSSL is megabytes, which a waiting supervisor does not need

    text = json.dumps(fixed(job), sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def commit(folder: Path, step: int, job_hash: str, values: Mapping[str, float] | None = None) -> int:
    """Declare a folder whole: fsync every file and folder in it, then write its marker. Returns its bytes.

    Committing twice is the same as once. Raises OSError when the disk does not take it; the folder then
    counts as not written.
    """
    (folder / MARKER).unlink(missing_ok=True)
    sizes = _sizes(folder)
    for name in sizes:
        sync_file(folder / name)
    for parent in sorted({(folder / name).parent for name in sizes} | {folder}, reverse=True):
        sync_folder(parent)
    marker = {"version": 1, "step": step, "job_hash": job_hash, "values": dict(values or {}), "files": sizes}
    write_json(folder / MARKER, marker)
    sync_folder(folder.parent)
    return sum(sizes.values())


def marker(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's marker, or None when there is no readable one."""
    try:
        found = read_json(folder / MARKER)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("files"), dict) else None


def is_complete(folder: Path) -> bool:
    """Whether the folder has its marker and every file the marker names, with the size it names."""
    found = marker(folder)
    return found is not None and all(_size(folder / name) == size for name, size in found["files"].items())


def step_of(folder: Path) -> int | None:
    """N of a folder named checkpoint-N, else None."""
    head, _, number = folder.name.rpartition("-")
    return int(number) if head == "checkpoint" and number.isascii() and number.isdigit() else None


def complete(run: Run) -> list[Path]:
    """The run's whole checkpoints, oldest step first."""
    return [folder for folder in _folders(run) if is_complete(folder)]


def newest_complete(run: Run) -> Path | None:
    """The whole checkpoint with the highest step, or None."""
    return next((folder for folder in reversed(_folders(run)) if is_complete(folder)), None)


def retire(run: Run, keep: int, keep_also: Collection[int] = ()) -> list[int]:
    """Delete whole checkpoints but the newest `keep`, the steps in `keep_also` and pinned ones.

    Returns the steps deleted. Unfinished folders are left alone: one may be being written. Raises OSError.
    """
    whole = complete(run)
    old = whole[: max(0, len(whole) - max(1, keep))]
    gone = [folder for folder in old if step_of(folder) not in keep_also and not _is_held(folder)]
    for folder in gone:
        discard(folder)
    return [step for folder in gone if (step := step_of(folder)) is not None]


def _is_held(folder: Path) -> bool:
    return any((folder / name).exists() for name in (PIN, IN_USE))


def discard(folder: Path) -> None:
    """Delete a folder so that no reader sees half of it: rename it aside, then remove. Raises OSError."""
    aside = folder.with_name(f".trash-{os.getpid()}-{folder.name}")
    folder.rename(aside)
    _remove(aside)


def clean(run: Run) -> list[str]:
    """Before a start: remove what a crash left behind (.tmp-*, .trash-*, unfinished checkpoints).

    Returns the names removed. Only the owner of the run's lock may call it. Raises OSError.
    """
    removed = []
    for parent in (run.path, run.checkpoints, run.model):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            unfinished = parent == run.checkpoints and step_of(path) is not None and not is_complete(path)
            if unfinished or path.name.startswith((".tmp-", ".trash-")):
                _remove(path)
                removed.append(path.name)
    return removed


def room_for(run: Run, bytes_needed: int, spare: int | None = None) -> Room:
    """Whether `bytes_needed` fit beside the run and leave `spare` (default: SPARE) free. Raises OSError."""
    if spare is None:
        spare = int(os.environ.get("FACTORY_DISK_SPARE") or SPARE)
    disk = os.statvfs(run.path)
    return Room(free=disk.f_bavail * disk.f_frsize, needed=bytes_needed + spare)


def _folders(run: Run) -> list[Path]:
    try:
        found = [path for path in run.checkpoints.iterdir() if step_of(path) is not None]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: step_of(path) or 0)


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-"))
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in files
        if path.name not in (MARKER, PIN, IN_USE)
    }


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # megabytes that a waiting supervisor does not need

        shutil.rmtree(path)
    else:
        path.unlink()
