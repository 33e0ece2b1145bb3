"""Tasks made by the library reasoning-gym: `gym:basic_arithmetic?size=500&seed=1` becomes a file of prompt rows.

The same words give the same rows, byte for byte, on every machine. The rows carry what the library's own scorer
needs (accuracy reward, mode gym): `task`, and `metadata` as text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from data.errors import FactoryError, Finding, refuse
from data.userpath import user_path

PREFIX = "gym:"
ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120.0
"""The longest time for making the rows of one source."""
MOST_ROWS = 100_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED = ("size", "seed")


@dataclass(frozen=True)
class GymSource:
    """What a gym source asks for: a task, how many rows, their seed, and settings of that task."""

    task: str
    size: int = 500
    seed: int = 42
    settings: tuple[tuple[str, Any], ...] = ()


def parse(path: str) -> GymSource:
    """The parts of `gym:task?size=500&seed=1&key=value`; values are JSON, or else text.

    Raises FactoryError for a path that is not of this form.
    """
    name, _, query = path.removeprefix(PREFIX).partition("?")
    if not _NAME.fullmatch(name):
        raise _broken(path, f"{name!r} is no task name")
    pairs = parse_qsl(query, keep_blank_values=True)
    if query and len(pairs) != query.count("&") + 1:
        raise _broken(path, "behind the ? stand key=value pairs, joined by &")
    given = {key: _value(text) for key, text in pairs}
    if len(given) != len(pairs):
        raise _broken(path, "a key stands there twice")
    size, seed = given.pop("size", 500), given.pop("seed", 42)
    if type(size) is not int or not 1 <= size <= MOST_ROWS:
        raise _broken(path, f"size must be a whole number from 1 to {MOST_ROWS:,}")
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise _broken(path, "seed must be a whole number from 0 to 2,147,483,647")
    return GymSource(name, size, seed, tuple(sorted(given.items())))


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return (
        text
        if isinstance(value, float) and value != value or value in (float("inf"), -float("inf"))
        else value
    )


def fetch(path: str, folder: Path | None = None) -> Path:
    """The JSON Lines file with the rows of a gym source, made when it is not there yet.

    `folder` is where such files are kept: cache/gym in the home folder that FACTORY_HOME names, as in a run; else
    the user's cache folder. Raises FactoryError when the library is missing, does not know the task or its settings,
    or takes too long.
    """
    source = parse(path)
    folder = folder or _kept()
    words = json.dumps([source.task, source.size, source.seed, source.settings, _version(path)])
    target = folder / f"{source.task}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.jsonl"
    if not target.is_file():
        _make(path, source, target)
    return target


def _kept() -> Path:
    if home := os.environ.get("FACTORY_HOME"):
        return user_path(home) / "cache" / "gym"
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "factory" / "gym"


def _version(path: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        raise refuse(
            "gym_missing",
            "gym: data needs the package reasoning-gym; pip install reasoning-gym.",
            field="data.path",
            value=path,
        ) from None


def _make(path: str, source: GymSource, target: Path) -> None:
    """Let a child make the rows: the library is heavy, and some settings keep it busy for ever."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        making = target.with_name(f".{target.name}.{os.getpid()}")
        with making.open("wb") as file:
            problem = _child(source, file)
        if problem is None:
            making.rename(target)
        else:
            making.unlink()
    except OSError as error:
        raise refuse(
            "gym_not_written",
            f"The gym tasks cannot be written to {target.parent} ({error.strerror}): choose another home folder.",
            field="data.path",
            value=path,
        ) from None
    if problem is not None:
        raise FactoryError(Finding("gym_refused", f"{path}: {problem}.", field="data.path", value=path))


def _child(source: GymSource, file: Any) -> str | None:
    request = json.dumps([source.task, source.size, source.seed, dict(source.settings)])
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH", "TZ") if key in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from data.gym import main; main()"],
            input=request.encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            env={**kept, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"making {source.size:,} rows took longer than {SECONDS:g} s; ask for fewer or easier ones"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return (said or [f"the library ended with exit code {done.returncode}"])[-1][:500]


def main() -> None:
    """In the child: a request on stdin, rows on stdout; a refusal as the last line of stderr and exit code 1."""
    task, size, seed, settings = json.loads(sys.stdin.buffer.read())
    try:
        for row in rows(GymSource(task, size, seed, tuple(settings.items()))):
            sys.stdout.buffer.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()
    except Exception as problem:
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        sys.stderr.write(f"{first}\n")
        sys.exit(1)


def rows(source: GymSource) -> Iterator[dict[str, Any]]:
    """The rows: prompt, answer (null where a task has no single one), task, metadata as text.

    Raises ValueError with a sentence when the library does not know the task or its settings.
    """
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if source.task not in DATASETS:
        raise ValueError(_unknown(source.task, sorted(DATASETS)))
    known = [name for name in DATASETS[source.task][1].__dataclass_fields__ if name not in _RESERVED]
    settings = dict(source.settings)
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ValueError(f"the task has no setting {unknown[0]!r}; it has: {', '.join(known)}")
    try:
        made = reasoning_gym.create_dataset(source.task, size=source.size, seed=source.seed, **settings)
    except (AssertionError, TypeError, ValueError) as problem:
        raise ValueError(f"the task refuses its settings ({problem})") from None
    for index in range(source.size):
        entry = made[index]
        answer = entry["answer"]
        yield {
            "prompt": entry["question"],
            "answer": None if answer is None else str(answer),
            "task": source.task,
            "metadata": encode(entry["metadata"]),
        }


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    advice = (
        f"did you mean {close[0]}?" if close else f"there are {len(known)}, such as {', '.join(known[:6])}"
    )
    return f"reasoning-gym has no task {name!r}; {advice}"


def encode(value: Any) -> str:
    """Metadata as JSON text that `decode` reads back to an equal value: tuples, sets and keys of any kind survive."""
    return json.dumps(_marked(value), ensure_ascii=False, default=str)


def decode(text: str) -> Any:
    """The inverse of `encode`. Raises ValueError for anything else."""
    return _unmarked(json.loads(text))


def _marked(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"()": [_marked(one) for one in value]}
    if isinstance(value, (set, frozenset)):
        return {"{}": [_marked(one) for one in sorted(value, key=repr)]}
    if isinstance(value, list):
        return [_marked(one) for one in value]
    if isinstance(value, dict):
        plain = all(isinstance(key, str) for key in value) and not (value.keys() & {"()", "{}", "{:}"})
        if plain:
            return {key: _marked(one) for key, one in value.items()}
        return {"{:}": [[_marked(key), _marked(one)] for key, one in value.items()]}
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a numpy scalar
        return value.item()
    return value


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        mark, inner = next(iter(value.items()))
        if mark == "()":
            return tuple(_unmarked(inner))
        if mark == "{}":
            return set(_unmarked(inner))
        if mark == "{:}":
            return {_unmarked(key): _unmarked(one) for key, one in inner}
    return {key: _unmarked(one) for key, one in value.items()}


def _broken(path: str, why: str) -> FactoryError:
    return refuse(
        "gym_source_broken",
        f"{path} is not a gym source: {why}; write gym:basic_arithmetic?size=500&seed=1.",
        field="data.path",
        value=path,
    )
