"""Which files a source means: a file, a folder, a glob. Links, hidden and binary files in folders are left out."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import refuse
from data.userpath import user_path

DATA_ENDINGS = frozenset(
    ".json .jsonl .ndjson .csv .tsv .psv .parquet .arrow .feather .xlsx .xlsm .txt .text .md .markdown".split()
)
PACKED_ENDINGS = (".gz", ".zst", ".zstd", ".gzip")


@dataclass
class Found:
    """The files of a source, in a stable order, and those left out with the reason."""

    files: list[Path]
    ignored: dict[str, str] = field(default_factory=dict)


def find_files(path: str) -> Found:
    """The files meant by `path`. Raises FactoryError when there is none, with what lies nearby."""
    if "\x00" in path:
        raise refuse(
            "data_not_found", "The data path contains a NUL character: check the path.", field="data.path"
        )
    given = user_path(path)
    if given.is_dir() and not given.is_symlink():
        return _of_folder(given)
    if not given.exists() and not given.is_symlink() and any(mark in path for mark in "*?["):
        return _of_glob(str(given))
    if not given.exists() and not given.is_symlink():
        raise refuse(
            "data_not_found", f"There is no file {path}{_near(given)}", field="data.path", value=path
        )
    return Found([given])


def _of_folder(folder: Path) -> Found:
    found = Found([])
    for base, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            _sort_in(Path(base) / name, str((Path(base) / name).relative_to(folder)), found)
    return _some(found, folder)


def _of_glob(pattern: str) -> Found:
    found = Found([])
    for name in sorted(glob.iglob(pattern, recursive=True)):  # noqa: PTH207 - absolute patterns are meant too
        if Path(name).is_dir():
            continue
        _sort_in(Path(name), name, found)
    return _some(found, Path(pattern))


def _sort_in(path: Path, shown: str, found: Found) -> None:
    ending = path.suffix.lower()
    if ending in PACKED_ENDINGS:
        ending = Path(path.stem).suffix.lower() or ".txt"
    if path.name.startswith("."):
        found.ignored[shown] = "hidden"
    elif path.is_symlink():
        found.ignored[shown] = "a link"
    elif ending not in DATA_ENDINGS:
        found.ignored[shown] = "not a data file"
    elif path.stat().st_size == 0:
        found.ignored[shown] = "empty"
    else:
        found.files.append(path)


def _some(found: Found, where: Path) -> Found:
    if found.files:
        return found
    listed = ", ".join(f"{name} ({why})" for name, why in list(found.ignored.items())[:5]) or "nothing"
    raise refuse(
        "data_folder_without_data",
        f"{where} holds no data file (found {listed}): "
        "name a folder with JSON, JSONL, CSV, Parquet, XLSX or text files.",
        field="data.path",
        value=str(where),
    )


def _near(path: Path) -> str:
    """': did you mean ...' for a name close to one that exists, else ': check the path'."""
    import difflib

    try:
        names = [one.name for one in path.parent.iterdir()]
    except OSError:
        return ": check the path."
    close = difflib.get_close_matches(path.name, names, 1, 0.6)
    return f": did you mean {path.parent / close[0]}?" if close else ": check the path."
