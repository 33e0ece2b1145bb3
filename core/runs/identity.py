"""Names that stay true: of a process, although its number is given away again, and of a user. Imports nothing big."""

from __future__ import annotations

import os


def process_start(pid: int) -> str | None:
    """When a process began, in the kernel's own count; with the pid it names a process for good. None: no such."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def user_name() -> str:
    """Who runs this process: the user's name, or the number where the system knows no name."""
    try:
        import pwd
    except ImportError:  # Windows
        return os.environ.get("USERNAME", "?")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # usual in containers
        return str(os.getuid())
