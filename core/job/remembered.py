"""What was found out about files that have not changed since, so that a sweep of jobs finds it out once.

One small JSON file per question in HOME/cache/remembered. A file is the same while its path, size, inode and time of
change (nanoseconds) are, and an answer holds while the code that found it is the same. Forgetting is always safe:
delete the folder at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_CHECKOUT = Path(__file__).resolve().parents[2]

NEWEST = 16
_here: dict[str, str] = {}
"""The newest answers of this process where no home is to keep them: plan asks what check has just found out."""


def remembered(home: Path, question: Any, files: Sequence[Path], find_out: Callable[[], Any]) -> Any:
    """The answer of `find_out()` as plain JSON, asked only once for these files and this `question`.

    A home that is not there, a read-only one or a damaged memory only cost the time to find out again. What
    `find_out` raises passes, and is not remembered. Raises OSError when a file is not there.
    """
    identity = [_code(), question, [_identity(path) for path in files]]
    name = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:32]
    place = home / "cache" / "remembered" / f"{name}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads(place.read_bytes())["answer"]
    if not home.is_dir():  # a check is no reason to make a home
        return _remembered_here(name, find_out)
    answer = find_out()
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".tmp-{os.getpid()}-{name}")
        temporary.write_text(json.dumps({"answer": answer}), encoding="utf-8")
        temporary.replace(place)
    return answer


def _remembered_here(name: str, find_out: Callable[[], Any]) -> Any:
    known = _here.get(name)
    if known is None:
        known = _here[name] = json.dumps(find_out())
        for old in list(_here)[:-NEWEST]:
            _here.pop(old, None)  # another thread may have been first
    return json.loads(known)


@cache
def _code() -> list[list[int]]:
    """The code that finds answers out: after an update the old answers are not taken for the new code's."""
    files = sorted(file for part in ("core/job", "data") for file in (_CHECKOUT / part).rglob("*.py"))
    return [[found.st_size, found.st_mtime_ns] for found in (file.stat() for file in files)]


def _identity(path: Path) -> list[Any]:
    found = path.stat()
    return [str(path.absolute()), found.st_size, found.st_ino, found.st_mtime_ns]
