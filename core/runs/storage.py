"""Writing so that a reader never sees half a file, and words for a disk that refuses. Stdlib only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from _thread import get_ident
from pathlib import Path
from typing import Any

from data.errors import FactoryError, refuse

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a full disk, a spent quota and a file-size limit (RLIMIT_FSIZE) look like."""


RESERVE = ".reserve"
RESERVE_BYTES = 256 << 10
"""A file in the run folder that is given up on a full disk, so that the last words of a run can still be written."""


def refusal(error: OSError, path: Path) -> FactoryError:
    """A refusal by the disk as a sentence for the user: full, read-only, broken, no permission."""
    if error.errno in FULL:
        text = f"The disk under {path} is full ({error.strerror}): make room, then `factory resume` the run."
        return refuse("disk_full", text, value=str(path))
    if error.errno == errno.EROFS:
        text = f"{path} is read-only: choose a home folder that can be written with --home."
        return refuse("read_only", text, value=str(path))
    if error.errno in (errno.EACCES, errno.EPERM):
        text = f"{path} may not be written by this user: change its owner or choose another home with --home."
        return refuse("no_permission", text, value=str(path))
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        text = f"{path} is in the way: a file is where a folder is needed; choose another home with --home."
        return refuse("not_a_folder", text, value=str(path))
    text = (
        f"Storage error at {path}: {error.strerror or error}. Check the disk, then `factory resume` the run."
    )
    return refuse("storage_error", text, value=str(path))


def refuse_target(folder: Path) -> None:
    """Refuse a folder that is there already or cannot be made, before work is done for it; leaves nothing behind."""
    made: list[Path] = []
    try:
        if folder.is_symlink() or folder.exists():
            text = f"{str(folder)!r} exists already and is not overwritten; choose another folder with --out."
            raise refuse("target_exists", text, value=str(folder))
        for path in reversed([folder, *folder.parents]):
            if not path.exists():
                path.mkdir()
                made.append(path)
    except OSError as error:
        raise not_written(folder, error) from error
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # somebody else has put something in it
                path.rmdir()


def not_written(folder: Path, error: OSError) -> FactoryError:
    """The refusal of a folder named by --out that cannot be written."""
    text = f"The folder {str(folder)!r} cannot be written ({error.strerror}); choose another with --out."
    return refuse("target_not_written", text, value=str(folder))


def half_made(folder: Path) -> Path:
    """Where a folder is made until it is whole and gets its name."""
    return folder.with_name(f".tmp-{folder.name}")


def sync_folder(folder: Path) -> None:
    """fsync a folder, so that the names in it survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """fsync one file's content. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` in one step: readers see the old text or the new, power cut or not. Raises OSError."""
    # Of its own for each thread of a server, or two would write into one file and lose the second's rename.
    temporary = path.with_name(f".tmp-{os.getpid()}-{get_ident()}-{path.name}")
    content = text.encode("utf-8", "replace")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            while content:
                content = content[os.write(descriptor, content) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step, nulls kept, NaN refused. Raises OSError, ValueError."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises OSError, ValueError."""
    return json.loads(path.read_text(encoding="utf-8"))


def keep_reserve(folder: Path) -> None:
    """Put a little disk aside for a run's last words. Raises OSError when there is not even that much."""
    (folder / RESERVE).write_bytes(b"\0" * RESERVE_BYTES)


def give_up_reserve(folder: Path) -> bool:
    """Free the reserve; False when there was none."""
    try:
        (folder / RESERVE).unlink()
    except FileNotFoundError:
        return False
    return True


def is_full(folder: Path) -> bool:
    """Whether the disk has no room left worth the name (a MiB beside the reserve). Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < 1 << 20


def tail(path: Path, lines: int, *, most: int = 1 << 20) -> str:
    """The last `lines` lines of a file of any size, no newline at the end; reads at most `most` bytes."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = size
        found = b""
        while start and found.count(b"\n") <= lines and size - start < most:
            start = max(0, start - (1 << 16))
            file.seek(start)
            found = file.read(size - start)
    kept = found.decode("utf-8", "replace").replace("\0", "").rstrip("\n").split("\n")
    return "\n".join(kept[-lines:] if lines else [])


def last_line(path: Path) -> str:
    """The last line of a file that says something, at most 300 characters; empty when there is none."""
    try:
        lines = [line.strip() for line in tail(path, 20).splitlines()]
    except OSError:
        return ""
    return next((line[:300] for line in reversed(lines) if line), "")
