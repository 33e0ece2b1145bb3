"""A waiting supervisor is little more than the bare interpreter, however many of them wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
OURS = {
    "core",
    "core.runs",
    *(f"core.runs.{name}" for name in ("identity", "locks", "queue", "supervisor", "watch")),
}
ADDED_MIB = 2.5
"""What it may take beyond the bare interpreter: 8.3 MiB and 10.3 were measured with CPython 3.11 on Linux."""

PROGRAM = """
import sys
before = set(sys.modules)
from core.runs import supervisor
print(*sorted({name for name in sys.modules if name not in before}))
"""


def _python(program: str, compiled: Path | None = None) -> str:
    """What a Python started like a supervisor prints; with `compiled`, a folder, it compiles nothing anew."""
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    if compiled is not None:
        env = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(compiled)
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", program], env=env, capture_output=True, text=True, check=True
    ).stdout


def test_it_imports_a_short_list_of_modules():
    """Without pathlib, dataclasses and typing, which would take 3 MiB, and without subprocess and threading."""
    names = set(_python(PROGRAM).split())
    assert {name for name in names if name.partition(".")[0] in ("core", "data")} == OURS
    top = {name.partition(".")[0] for name in names if not name.startswith("_")} - {"core"}
    allowed = {
        *("contextlib", "collections", "functools", "types", "operator", "keyword", "reprlib", "enum"),
        *("json", "re", "copyreg", "errno", "fcntl", "select", "signal", "itertools", "time", "pwd"),
        *("os", "stat", "genericpath", "posixpath"),
    }
    assert top <= allowed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_its_memory_is_the_bare_interpreters_and_little_more(tmp_path: Path):
    resident = (
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])"
    )
    load = "import core.runs.supervisor\n"
    _python(load, tmp_path)
    bare, waiting = (int(_python(before + resident, tmp_path)) / 1024 for before in ("", load))
    assert 0 < waiting - bare < ADDED_MIB, f"{bare:.1f} MiB bare, {waiting:.1f} with what waits"
