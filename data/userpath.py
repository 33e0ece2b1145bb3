"""A path as a user writes it, `~` and `~somebody` included."""

from __future__ import annotations

from pathlib import Path


def user_path(written: str | Path) -> Path:
    """The path with `~` and `~somebody` put in full; where there is no such user, the name is a plain one."""
    path = Path(written)
    try:
        return path.expanduser()
    except RuntimeError:  # nobody of that name, or a user without a home folder
        return path
