"""The tests' own rules: tiers are left out by name, and a skip that nobody listed fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import unlisted

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest
{skip}
def test_plain(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.engines
def test_engines(): pass
"""


def run(tmp_path: Path, skip: str = "", *options: str) -> subprocess.CompletedProcess[str]:
    """pytest with the project's own tiers and settings, on a folder of three tests."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "tiers.py").read_text())
    (tmp_path / "test_three.py").write_text(TESTS.format(skip=skip))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        tmp_path,
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "1 passed, 2 deselected"),
        (("--slow",), "2 passed, 1 deselected"),
        (("--slow", "--engines"), "3 passed"),
    ],
)
def test_a_tier_runs_only_when_asked_for_and_is_counted_otherwise(tmp_path, options, says):
    answer = run(tmp_path, "", *options)
    assert answer.returncode == 0 and says in answer.stdout


def test_a_skip_that_is_not_listed_fails_the_run(tmp_path):
    answer = run(tmp_path, "def test_skips(): pytest.skip('no reason')")
    assert answer.returncode == 1 and "NOT LISTED" in answer.stdout and "no reason" in answer.stdout


def test_a_module_that_skips_as_a_whole_fails_the_run_too(tmp_path):
    answer = run(tmp_path, "pytest.importorskip('no_such_module_anywhere')")
    assert answer.returncode != 0 and "NOT LISTED" in answer.stdout


UNSTEADY = """
import pathlib
def once(name):
    seen = pathlib.Path(__file__).with_name(name)
    assert seen.exists() or seen.write_text("") is None and False, "not at once"
"""


def test_a_test_that_passes_only_the_second_time_is_told_with_its_first_failure(tmp_path):
    answer = run(tmp_path, UNSTEADY + "def test_once(): once('a')", "--reruns=1")
    assert answer.returncode == 0 and "UNSTEADY" in answer.stdout and "not at once" in answer.stdout
    again = run(tmp_path, UNSTEADY + "def test_once(): once('b')")
    assert again.returncode == 1, "without the option every failure counts"


def test_many_of_them_fail_the_run_and_so_does_one_that_fails_twice(tmp_path):
    many = "".join(f"def test_{name}(): once('{name}')\n" for name in "cdef")
    assert run(tmp_path, UNSTEADY + many, "--reruns=1").returncode == 1
    assert run(tmp_path, "def test_wrong(): assert False", "--reruns=1").returncode == 1


def test_a_listed_skip_is_allowed_only_for_its_reason():
    allowed = {"tests/faults/*": "needs root"}
    assert unlisted([("tests/faults/test_a.py::b", "needs root for mount")], allowed) == []
    assert unlisted([("tests/faults/test_a.py::b", "broken")], allowed)
    assert unlisted([("tests/unit/test_a.py::b", "needs root for mount")], allowed)
