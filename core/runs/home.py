"""The home folder as a whole: may runs live in it, and did this version of Factory write it."""

from __future__ import annotations

import sys
from pathlib import Path

from core.runs.storage import read_json, refusal, write_json
from data.errors import refuse

VERSION = 1
"""Version of the home's layout; homes of a higher one are refused."""
NETWORK = frozenset(
    "nfs nfs4 cifs smb2 smb3 smbfs 9p drvfs afs ceph lustre gpfs beegfs glusterfs fuse.glusterfs fuse.sshfs "
    "fuse.s3fs fuse.rclone fuse.gcsfuse davfs fuse.davfs2 ncpfs".split()
)
"""File systems whose locks and appends another machine may not see, or see too late."""


def check_home(home: Path) -> None:
    """Refuse a home that a newer version wrote. A home that is not there yet is fine. Raises FactoryError."""
    try:
        found = read_json(home / "home.json")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise refusal(error, home) from error
    except ValueError:
        found = {}
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, int):
        text = f"{home / 'home.json'} is damaged: delete it if {home} is a home folder of Factory."
        raise refuse("home_damaged", text, value=str(home))
    if version > VERSION:
        text = (
            f"The home {home} was written by a newer Factory (layout {version}, this one knows {VERSION}): "
            "update Factory, or choose another home with --home."
        )
        raise refuse("home_newer", text, value=str(home), version=version)


def open_home(home: Path, *, force: bool = False) -> None:
    """Make the home ready for runs. `force` accepts a network file system. Raises FactoryError."""
    check_home(home)
    if not force and (kind := file_system(home)) in NETWORK:
        text = (
            f"The home {home} lies on a network file system ({kind}), where locks and appends are unsafe: "
            "choose a local folder with --home, or insist with --force-home."
        )
        raise refuse("home_on_network", text, value=str(home), file_system=kind)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refused = refusal(error, home)
        if refused.findings[0].code != "storage_error":
            raise refused from error
        text = (
            f"The home {home} cannot be made ({error.strerror}): choose another with --home or FACTORY_HOME."
        )
        raise refuse("home_not_made", text, value=str(home)) from error
    try:
        if not (home / "home.json").exists():
            write_json(home / "home.json", {"version": VERSION})
    except OSError as error:
        raise refusal(error, home) from error


def file_system(path: Path, mounts: str | None = None) -> str | None:
    """The type of the file system a path lies on or would lie on, by Linux' mountinfo; None where that is not told."""
    if mounts is None:
        if sys.platform != "linux":
            return None
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    target = path.resolve()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if not right:
            continue
        point = Path(left.split()[4].replace("\\040", " ").replace("\\134", "\\"))
        if target.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), right.split()[0])
    return best[1] if best else None
