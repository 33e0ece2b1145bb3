"""Cut a process off: limits on memory, time and files; no network; a read-only disk; a process table of its own.

Standard library only, Linux only. What the system does not allow is reported, never silently left out.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from pathlib import Path

# linux/sched.h, linux/mount.h, linux/prctl.h, asm/unistd.h (mount_setattr has the same number everywhere)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 0x1
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION_3 = 0x20080522
INSIDE_UID = 1000

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to end this process when the thread that started it ends, however that happens."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork_watched() -> None:
    """Go on in a fork. The outer process waits, passes the exit code on, and ends the fork when its own parent ends.

    A parent's death signal would come at the end of the thread that started us, which in a server is at once.
    """
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    inner = os.fork()
    if inner:
        _watch(inner, parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    die_with_parent()


def _watch(inner: int, parent: int) -> None:
    """Never returns. Looks once a second whether the parent is still there."""
    while True:
        ended, status = os.waitpid(inner, os.WNOHANG)
        if ended:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        if os.getppid() != parent:
            os.kill(inner, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 1.0)


def limit(*, memory_mb: int, file_mb: int = 64) -> None:
    """Bound address space and written files of this process and its children; no core dumps."""
    _lower(resource.RLIMIT_AS, memory_mb << 20)
    _lower(resource.RLIMIT_FSIZE, file_mb << 20)
    _lower(resource.RLIMIT_CORE, 0)


def limit_run(*, cpu_seconds: int, processes: int = 64, files: int = 256) -> None:
    """Bound one run inside the child: processor time, processes and open files."""
    _lower(resource.RLIMIT_CPU, cpu_seconds)
    _lower(resource.RLIMIT_NPROC, processes)
    _lower(resource.RLIMIT_NOFILE, files)


def _lower(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def isolate(writable: Path) -> list[str]:
    """Leave the machine's network, processes and disk; only `writable` (a fresh tmpfs) can be written afterwards.

    Returns what could not be cut off, of "network", "processes", "disk". The caller goes on in a watched fork, as
    the first process of its own process table.
    """
    uid, gid = os.getuid(), os.getgid()
    if not _unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC):
        fork_watched()
        return ["network", "processes", "disk"]
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INSIDE_UID} {uid} 1")
    _write("/proc/self/gid_map", f"{INSIDE_UID} {gid} 1")
    missing = [] if _read_only_but(writable) else ["disk"]
    fork_watched()
    _hide_processes()
    _drop_rights()
    return missing


def _unshare(flags: int) -> bool:
    return bool(_libc.unshare(flags) == 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - procfs wants a single plain write
        file.write(text)


def _read_only_but(writable: Path) -> bool:
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    folder = os.fsencode(writable)
    done: bool = (
        _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)) == 0
        and _libc.mount(b"tmpfs", folder, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=64m,mode=700") == 0
    )
    if done:
        os.chdir(writable)
    return done


def _hide_processes() -> None:
    """A /proc of our own, or an empty one: the machine's would show the environment of the user's processes."""
    hidden = MS_NOSUID | MS_NODEV
    if _libc.mount(b"proc", b"/proc", b"proc", hidden, None) != 0:
        _libc.mount(b"tmpfs", b"/proc", b"tmpfs", hidden, b"size=4k")


def _drop_rights() -> None:
    """Give up every capability inside the new user namespace, for good: the mounts cannot be changed back."""
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    _libc.capset(header, struct.pack("IIIIII", 0, 0, 0, 0, 0, 0))
