"""Parts that not everybody needs: one requirements file each in envs/, installed by `factory env install NAME`.

A file begins with comments: what it is for, then `into` (main: beside our own packages; own: HOME/envs/NAME, for
what has pins that fight ours), `takes` (disk, about), and perhaps `needs`, `build` (with ours: what is built from
source sees the packages that are here, pip's --no-build-isolation), and `then`: packages that are installed last and
without their own requirements.

FACTORY_ENVS names another folder than HOME/envs, for several homes that share their environments.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data.errors import FactoryError, refuse
from data.userpath import user_path

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "envs"
PINS = CHECKOUT / "requirements.txt"
STAMP = "factory-environment.txt"
ENVS = "FACTORY_ENVS"
"""Environment variable with the folder that holds the environments."""
UNITS = {"MB": 10**6, "GB": 10**9}
SPARE = 10**9
"""Bytes that stay free beside what is installed."""


@dataclass(frozen=True)
class Environment:
    """One requirements file, as its comments tell."""

    name: str
    path: Path
    about: str
    into: Literal["main", "own"]
    takes: int
    """Bytes on disk."""
    needs: str | None
    packages: tuple[str, ...]
    beside: bool = False
    """Whether what is built from source sees the packages that are here."""
    then: tuple[str, ...] = ()
    """Packages installed last, without their own requirements."""

    def folder(self, home: Path) -> Path:
        """Where it is installed."""
        return folder_of(home) / self.name if self.into == "own" else Path(sys.prefix)

    def python(self, home: Path) -> Path:
        """The interpreter that has its packages."""
        return self.folder(home) / "bin" / "python" if self.into == "own" else Path(sys.executable)

    def installed(self, home: Path) -> bool:
        """Whether it was installed as the file is now."""
        try:
            return self._stamp(home).read_text("utf-8") == self._content()
        except OSError:
            return False

    def commands(self, home: Path) -> list[list[str]]:
        """What installs it, as argument lists, in this order."""
        pip = [str(self.python(home)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        pip += ["--no-build-isolation"] if self.beside else []
        if self.into == "main":  # nothing that is pinned may move
            return [[*pip, "--constraint", str(PINS), "--requirement", str(self.path)]]
        make = [sys.executable, "-m", "venv", str(self.folder(home))]
        last = [[*pip, "--no-deps", *self.then]] if self.then else []
        return [make, [*pip, "--requirement", str(self.path)], *last]

    def packages_folder(self, home: Path) -> Path | None:
        """The folder of its packages, to look them up without starting its Python; None when it is not there."""
        return next(iter(sorted(self.folder(home).glob("lib/python3*/site-packages"))), None)

    def stamp(self, home: Path) -> None:
        """Note that it is installed as the file is now. Raises OSError."""
        self._stamp(home).write_text(self._content(), "utf-8")

    def _stamp(self, home: Path) -> Path:
        mark = STAMP if self.into == "own" else f"factory-env-{self.name}.txt"
        return self.folder(home) / mark

    def _content(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def folder_of(home: Path) -> Path:
    """The folder that holds the environments of a home."""
    return user_path(os.environ.get(ENVS) or home / "envs").absolute()


def environments() -> list[Environment]:
    """Every environment that can be installed, by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.txt"))]


def environment(name: str) -> Environment:
    """The environment of this name. Raises FactoryError naming those there are."""
    found = {one.name: one for one in environments()}
    if name not in found:
        known = ", ".join(found)
        text = f"There is no environment {name[:80]!r}; there are: {known}."
        raise refuse("environment_unknown", text, value=name[:80])
    return found[name]


def packages_of(name: str | None, home: Path) -> Path | None:
    """The folder with the packages of an environment; None for our own, and for one that is not installed."""
    return environment(name).packages_folder(home) if name else None


def install(chosen: Environment, home: Path) -> float:
    """Install it, pip's own words going to the terminal; seconds it took.

    Raises FactoryError when the disk has no room, or when pip fails.
    """
    _check_room(chosen, home)
    began = time.monotonic()
    for command in chosen.commands(home):
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
            raise _failed(chosen)
    chosen.stamp(home)
    return time.monotonic() - began


def _failed(chosen: Environment) -> FactoryError:
    text = (
        f"Installing {chosen.name} failed; pip's last lines above say why. Start again when that is settled: "
        "what is installed already stays."
    )
    return refuse("environment_failed", text, value=chosen.name)


def _check_room(chosen: Environment, home: Path) -> None:
    from core.job.machine import disk_free

    place = chosen.folder(home)
    if not os.access(_first_there(place), os.W_OK):
        text = f"{place} cannot be written by this user; choose another home with --home, or another environment."
        raise refuse("environment_not_writable", text, value=str(place))
    free = disk_free(place)
    if free < chosen.takes + SPARE:
        text = (
            f"{chosen.name} takes {chosen.takes / 10**9:.1f} GB and the disk under {place} has {free / 10**9:.1f} GB "
            "free; make room first."
        )
        raise refuse("disk_full", text, value=str(place), free=free, needed=chosen.takes + SPARE)


def _first_there(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _read(path: Path) -> Environment:
    lines = path.read_text("utf-8").splitlines()
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in comments[1:])}
    amount, unit = facts["takes"].split()
    into: Literal["main", "own"] = "own" if facts["into"] == "own" else "main"
    packages = tuple(
        line.split("#")[0].strip() for line in lines if line.strip() and not line.startswith("#")
    )
    takes = int(float(amount) * UNITS[unit])
    then = tuple(facts.get("then", "").split())
    needs, beside = facts.get("needs"), "build" in facts
    return Environment(path.stem, path, comments[0], into, takes, needs, packages, beside, then)
