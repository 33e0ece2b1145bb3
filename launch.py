#!/usr/bin/env python3
"""Start Factory: make .venv beside this file, keep it at requirements.txt, hand over to the command line.

    python launch.py                      open the board in a browser
    python launch.py --help               what else there is to do
    python launch.py train job.yaml       any word of `factory`
    python launch.py test [pytest words]  the tests
    python launch.py --no-venv ...        in the active environment (venv, conda) instead of .venv

Standard library only, and readable by old Pythons, so that they get a sentence instead of a SyntaxError.
Downloads nothing but Python packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST = (3, 11)
STAMP = "factory-stamp-{}.txt"


def main(words):
    """Prepare the environment and become `factory WORDS`, or pytest. Returns only a problem, as text."""
    if sys.version_info < OLDEST:
        return _too_old()
    no_venv = words[:1] == ["--no-venv"]
    words = words[1:] if no_venv else words
    testing = words[:1] == ["test"]
    environment = _active_environment() if no_venv else HERE / ".venv"
    if environment is None:
        return (
            "--no-venv uses the active environment, and none is active; activate one, or leave --no-venv out."
        )
    problem = _prepare(environment, testing, make=not no_venv)
    if problem:
        return problem
    # -P keeps the current folder out of the import path: a folder `core` there must not be taken for ours.
    if testing:
        os.chdir(HERE)
        return _become([_python(environment), "-m", "pytest", *_side_by_side(words[1:]), *words[1:]])
    return _become([_python(environment), "-P", "-m", "core.cli", *(words or ["board", "--open"])])


def _side_by_side(words):
    """Whole tiers run several files at once; a test that was named runs alone, where a debugger can reach it."""
    if any(not word.startswith("--") for word in words) or "--version" in words:
        return []
    # In the order of the folders, small tests last: the cores end together.
    return ["-n", str(max(1, min(4, os.cpu_count() or 1))), "--dist", "loadfile", "--no-loadscope-reorder"]


def _too_old():
    wanted = ".".join(map(str, OLDEST))
    newer = next(filter(shutil.which, [f"python3.{minor}" for minor in range(20, 10, -1)]), None)
    advice = f"run: {newer} launch.py" if newer else "install a newer Python and start again with it."
    return f"Factory needs Python {wanted} or newer, and this is {sys.version.split()[0]}; {advice}"


def _active_environment():
    """The folder of the environment that this Python or this shell is in; None outside of any."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix)
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    return Path(active) if active else None


def _python(environment):
    """The interpreter of an environment, by the layouts of venv and conda on POSIX and Windows."""
    places = [environment / place for place in ("bin/python", "Scripts/python.exe", "python.exe")]
    return str(next((place for place in places if place.exists()), places[0]))


def _become(command):
    sys.stdout.flush()
    if os.name == "nt":  # there execv returns to the shell at once, and the two would share the keyboard
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


def _prepare(environment, testing, make):
    """Bring an environment to what the requirement files say. Returns the text of a problem, or None."""
    steps = [
        ("packages", ["-r", "requirements.txt"], ["requirements.txt"]),
        # On its own: what this package requires itself is not wanted.
        ("embedded model", ["--no-deps", "-r", "requirements-embedded.txt"], ["requirements-embedded.txt"]),
        ("checkout", ["--no-deps", "--no-build-isolation", "--editable", "."], ["pyproject.toml"]),
    ]
    if testing:
        steps.append(("test packages", ["-r", "requirements-test.txt"], ["requirements-test.txt"]))
    due = [step for step in steps if not _is_done(environment, step)]
    if not due and Path(_python(environment)).exists():
        return None
    with _one_at_a_time():
        if make and not Path(_python(environment)).exists():
            problem = _make(environment)
            if problem:
                return problem
            due = steps
        return _install(environment, due)


def _make(environment):
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        return (
            "This Python cannot make environments (its venv or ensurepip module is missing). On Debian and "
            "Ubuntu: apt install python3-venv. Or activate an environment and use: python launch.py --no-venv"
        )
    _say(f"Making {environment}")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=False)
    if made.returncode:
        return f"{environment} could not be made; the lines above say why."
    return None


def _install(environment, steps):
    python = _python(environment)
    if not os.access(environment, os.W_OK):
        return (
            f"{environment} cannot be written; activate an environment of your own, or leave --no-venv out."
        )
    if subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, check=False).returncode:
        return f"{python} has no pip; install it with: {python} -m ensurepip"
    for number, step in enumerate(steps, 1):
        if _is_done(environment, step):  # another launch.py did it while this one waited
            continue
        name, words, _ = step
        hint = ", some minutes the first time" if name == "packages" else ""
        _say(f"[{number}/{len(steps)}] Installing the {name}{hint}")
        started = time.monotonic()
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *words]
        if subprocess.run(pip, cwd=HERE, check=False).returncode:
            return (
                f"Installing the {name} failed; pip's last lines above say why. Without a network or a package "
                "index it cannot be done; start again when there is one, what is installed already stays."
            )
        _stamp(environment, name).write_text(_wanted(step), "utf-8")
        _say(f"[{number}/{len(steps)}] Done in {time.monotonic() - started:.0f} s")
    # Python does so by itself, except where PYTHONDONTWRITEBYTECODE is set; then every command compiles for 0.1 s.
    subprocess.run([python, "-m", "compileall", "-q", "core", "data", "webui"], cwd=HERE, check=False)
    return None


def _stamp(environment, name):
    return environment / STAMP.format(name.replace(" ", "-"))


def _wanted(step):
    """What a finished step is known by: the place of the checkout, the command, and its files' content."""
    _, words, files = step
    content = b"\0".join((HERE / file).read_bytes() for file in files)
    return hashlib.sha256(repr((str(HERE), words)).encode() + content).hexdigest()


def _is_done(environment, step):
    stamp = _stamp(environment, step[0])
    return stamp.is_file() and stamp.read_text("utf-8") == _wanted(step)


@contextlib.contextmanager
def _one_at_a_time():
    """Hold the only right to install; a second launch.py waits until the first is done."""
    try:
        import fcntl
    except ImportError:  # Windows: two at once are not kept apart
        yield
        return
    with (HERE / ".venv.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another launch.py is installing; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
