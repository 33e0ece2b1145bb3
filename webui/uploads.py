"""The data folder of the home: files come in as a stream of bytes, counted, whole or not at all.

They keep their own names, spaces, quotes and Chinese included, because people look for them by these; what could lead
out of the folder, hide, or be run is refused. Nothing is ever imported or loaded from this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.job.machine import CHECKOUT
from core.runs.folder import list_runs
from core.runs.home import open_home
from core.runs.locks import is_held, try_lock
from core.runs.states import read_status
from core.runs.storage import read_json, refusal, sync_folder
from data.errors import refuse
from data.files import DATA_ENDINGS, PACKED_ENDINGS
from webui.settings import Settings

SAMPLES = CHECKOUT / "data" / "samples"
PART = re.compile(r"\.upload-[0-9a-f]{16}\.part")
SPARE = 1 << 30
"""Bytes an upload leaves free on the disk, for the checkpoints of runs."""
BLOCK = 4 << 20
_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f/\\:*?\[\]<>|\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Never in a name: what separates folders or makes patterns, control characters, marks that turn text around."""


@dataclass(frozen=True)
class Stored:
    """A file of the data folder."""

    path: Path
    bytes: int
    changed: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `path` is what a job's data.path says."""
        return {"name": self.path.name, "bytes": self.bytes, "changed": self.changed, "path": str(self.path)}


def folder_of(settings: Settings) -> Path:
    """Where uploads are."""
    return settings.home / "data"


def checked_name(name: str) -> str:
    """The name in its normal form. Raises FactoryError for one that no data file may have."""
    plain = unicodedata.normalize("NFC", name).strip()
    ending = Path(plain).suffix.lower()
    if ending in PACKED_ENDINGS:
        ending = Path(Path(plain).stem).suffix.lower()
    if not plain or plain.startswith(".") or _BAD.search(plain) or len(plain.encode()) > 200:
        text = f"{name[:80]!r} cannot be a file name here: no slash, colon, bracket, star, no dot in front."
        raise refuse("file_name_invalid", text, field="name", value=name[:80])
    if ending not in DATA_ENDINGS:
        known = ", ".join(sorted(DATA_ENDINGS))
        text = (
            f"{plain!r} does not end like a data file ({known}, also with .gz or .zst); rename or convert it."
        )
        raise refuse("file_kind_unknown", text, field="name", value=plain[:80])
    return plain


def find(settings: Settings, name: str) -> Stored:
    """A file of the data folder by its name. Raises FactoryError when there is none; links are none."""
    path = folder_of(settings) / checked_name(name)
    if path.is_symlink() or not path.is_file():
        raise refuse(
            "data_file_not_found", f"There is no file {name[:80]!r} in the data folder.", value=name[:80]
        )
    return _stored(path)


def stored(folder: Path) -> list[Stored]:
    """The data files of a folder, newest first; hidden ones, links and what is being uploaded are left out."""
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        if path.name.startswith(".") or path.is_symlink() or not path.is_file():
            continue
        ending = path.suffix.lower()
        if ending in DATA_ENDINGS or ending in PACKED_ENDINGS:
            with contextlib.suppress(FileNotFoundError):
                found.append(_stored(path))
    return sorted(found, key=lambda one: -one.changed)


def used_bytes(settings: Settings) -> int:
    """What the data folder takes, unfinished uploads of now included."""
    folder = folder_of(settings)
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) if folder.is_dir() else 0


async def take_in(
    settings: Settings, name: str, chunks: AsyncIterator[bytes], *, replace: bool = False
) -> Stored:
    """Write a stream to the data folder: aside first, synced, then under its name in one step.

    Raises FactoryError for a name in use, a quota, a full disk; whatever happens, nothing half is left under the name.
    """
    target = folder_of(settings) / checked_name(name)
    await asyncio.to_thread(_prepare, settings, target, replace)
    part = _Part(target.parent, await asyncio.to_thread(_room, settings, target))
    try:
        buffer = bytearray()
        async for chunk in chunks:
            buffer += chunk
            if len(buffer) >= BLOCK:
                await asyncio.to_thread(part.write, bytes(buffer))
                buffer.clear()
        await asyncio.to_thread(part.write, bytes(buffer))
        await asyncio.to_thread(part.put_in_place, target, replace)
    except OSError as error:
        raise refusal(error, target.parent) from error
    finally:
        part.close()
    return _stored(target)


class _Part:
    """A file being written; its lock tells the living from what a killed server left."""

    def __init__(self, folder: Path, room: int) -> None:
        self.path = folder / f".upload-{os.urandom(8).hex()}.part"
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refusal(error, folder) from error
        try_lock(self._file)
        self._room, self._written = room, 0

    def write(self, block: bytes) -> None:
        """Append. Raises FactoryError over the quota, OSError when the disk refuses."""
        self._written += len(block)
        if self._written > self._room:
            text = (
                f"The data folder takes {self._room / 2**20:,.0f} MiB more at most; delete files there first."
            )
            raise refuse("quota_exceeded", text, value=self._room)
        view = memoryview(block)
        while view:
            view = view[os.write(self._file, view) :]

    def put_in_place(self, target: Path, replace: bool) -> None:
        """Sync, and give it its name; without `replace` never over a file that came meanwhile."""
        if not self._written:
            raise refuse(
                "file_empty", f"{target.name} is empty: there is nothing to learn from.", value=target.name
            )
        os.fchmod(self._file, 0o644)
        os.fsync(self._file)
        if replace and target.exists():
            trash = target.parent.parent / "trash" / "data"
            os.link(
                target, _place_in(trash, target.name)
            )  # the old file is in the trash before it loses its name
            sync_folder(trash)
            self.path.replace(target)
        else:
            try:
                os.link(self.path, target)  # unlike a rename, refuses to replace
            except FileExistsError:
                raise _taken(target) from None
        sync_folder(target.parent)

    def close(self) -> None:
        """Close, and take away what was not put in place."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def delete(settings: Settings, name: str) -> tuple[Stored, Path]:
    """Move a file to the trash of the home. Refused while a live run reads it. Raises FactoryError."""
    file = find(settings, name)
    if users := _live_users(settings, file.path):
        text = f"{file.path.name} is in use by run {users[0]}: stop the run first, or let it end."
        raise refuse("data_in_use", text, value=file.path.name, runs=users)
    trash = settings.home / "trash" / "data"
    try:
        target = _place_in(trash, file.path.name)
        file.path.rename(target)
        sync_folder(file.path.parent)
    except OSError as error:
        raise refusal(error, trash) from error
    return file, target


def _place_in(trash: Path, name: str) -> Path:
    """A free name in the trash."""
    trash.mkdir(parents=True, exist_ok=True)
    return trash / f"{time.time_ns()}-{name}" if (trash / name).exists() else trash / name


def _live_users(settings: Settings, path: Path) -> list[str]:
    """Runs that are not over and whose plan names the file."""
    found = []
    for run in list_runs(settings.home):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if not read_status(run).over and any(
                one["path"] == str(path) for one in read_json(run.plan_json)["files"]
            ):
                found.append(run.id)
    return found


def _prepare(settings: Settings, target: Path, replace: bool) -> None:
    open_home(settings.home, force=settings.force_home)
    try:
        target.parent.mkdir(exist_ok=True)
        for left in target.parent.glob(".upload-*.part"):
            if PART.fullmatch(left.name) and not is_held(left):
                left.unlink(missing_ok=True)
    except OSError as error:
        raise refusal(error, target.parent) from error
    if target.is_symlink() or (target.exists() and (not replace or not target.is_file())):
        raise _taken(target)
    if replace and (users := _live_users(settings, target)):
        text = f"{target.name} is in use by run {users[0]}: upload it under another name."
        raise refuse("data_in_use", text, value=target.name, runs=users)


def _room(settings: Settings, target: Path) -> int:
    """Bytes an upload may have: by the quota, by its own limit, by the disk."""
    quota = settings.quota_bytes - used_bytes(settings)
    disk = shutil.disk_usage(target.parent).free - SPARE
    room = min(quota, settings.upload_bytes, disk)
    if room <= 0:
        what = "The disk has no room for it" if disk <= 0 else "The data folder has reached its quota"
        text = (
            f"{what}: delete files of the data folder, empty the trash, or have the operator raise the quota."
        )
        raise refuse("quota_exceeded", text, value=settings.quota_bytes)
    return room


def _taken(target: Path) -> Exception:
    stem, ending = target.name.partition(".")[0], "".join(target.name.partition(".")[1:])
    free = next(
        name
        for number in range(2, 10_000)
        if not (target.parent / (name := f"{stem}-{number}{ending}")).exists()
    )
    text = f"There is a file {target.name} already: upload it as {free}, or say that it is to be replaced."
    return refuse("file_exists", text, field="name", value=target.name, free=free)


def _stored(path: Path) -> Stored:
    found = path.stat()
    return Stored(path, found.st_size, found.st_mtime)
