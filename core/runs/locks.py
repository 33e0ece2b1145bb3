"""Kernel locks (flock): held by a descriptor, handed to a child, dropped by the kernel when the last holder dies.

No lock can be stale, whatever was killed. Linux and macOS; elsewhere taking one is refused in words.
Part of a waiting supervisor, so it imports nothing big (core/runs/supervisor.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    StrPath = str | os.PathLike[str]

try:
    import fcntl
except ImportError:  # Windows has no flock; importing must work all the same
    fcntl = None  # type: ignore[assignment]

BUSY = (errno.EWOULDBLOCK, errno.EACCES)


def open_lock(path: StrPath, mode: int = 0o644) -> int:
    """A descriptor of the lock file, made if missing and never followed through a link. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    except PermissionError:  # another user's lock: reading rights are enough to lock
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return open_lock(path, mode)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, mode)  # the umask must not shut other users out
    return descriptor


def try_lock(descriptor: int) -> bool:
    """Take the lock if it is free. Raises OSError for failures of the file system."""
    if fcntl is None:
        from data.errors import refuse

        text = "Training runs need Linux or macOS: this system has no kernel file locks."
        raise refuse("system_unsupported", text)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in BUSY:
            return False
        raise
    return True


def take(path: StrPath, patience: float = 0.3) -> int | None:
    """The locked descriptor, or None when someone else holds the lock.

    `patience` (seconds) outlasts readers, who hold a lock for microseconds to see whether it is free.
    Raises OSError, among them EROFS on a read-only file system.
    """
    descriptor = open_lock(path)
    deadline = time.monotonic() + patience
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return None
        time.sleep(0.02)
    return descriptor


def is_held(path: StrPath) -> bool:
    """Whether some process holds the lock. A missing file is a free lock."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in BUSY:
            return True
        raise
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def locked(path: StrPath, mode: int = 0o644) -> Iterator[int]:
    """Hold the lock for a moment, waiting for it as long as it takes. Raises OSError."""
    descriptor = open_lock(path, mode)
    try:
        if not try_lock(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
