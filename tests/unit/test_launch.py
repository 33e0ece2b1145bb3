"""launch.py's own decisions, beside a recorder in place of the environment's Python. .ci/run does it all for real."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import launch

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "launch.py",
    "requirements.txt",
    "requirements-embedded.txt",
    "requirements-test.txt",
    "pyproject.toml",
)
RECORDER = """#!/bin/sh
echo "$@" >> "$RECORD"
case "$*" in *"$FAIL_ON"*) exit 7;; esac
case "$*" in *install*) sleep "${SLOW:-0}";; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what launch.py works with, in a folder with a blank in its name, and an environment that records."""
    folder = tmp_path / "my checkout"
    folder.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    _recorder(folder / ".venv")
    return folder


def _recorder(environment: Path) -> None:
    python = environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(RECORDER)
    python.chmod(0o755)


def start(
    checkout: Path, *words: str, **variables: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """One launch.py in a fresh process, and what the environment's Python was asked to do, line by line."""
    record = checkout.parent / "record"
    record.write_text("")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    environment |= {"RECORD": str(record), "FAIL_ON": "no such words"} | variables
    # The base Python: the one of an environment would itself count as the active environment.
    base = str(Path(sys.base_prefix) / "bin" / "python3")
    answer = subprocess.run(
        [base, checkout / "launch.py", *words],
        env=environment,
        cwd=checkout.parent,
        capture_output=True,
        text=True,
    )
    return answer, record.read_text().splitlines()


def installs(record: list[str]) -> list[str]:
    return [line.split("--no-input ")[1] for line in record if " install " in line]


def test_the_first_start_installs_in_order_and_hands_over(checkout):
    answer, record = start(checkout, "check", "a job.yaml")
    assert installs(record) == [
        "-r requirements.txt",
        "--no-deps -r requirements-embedded.txt",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert record[-1] == "-P -m core.cli check a job.yaml"
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "[1/3] Installing the packages" in answer.stderr and "[3/3] Done in" in answer.stderr


def test_the_second_start_only_hands_over(checkout):
    start(checkout)
    answer, record = start(checkout, "runs")
    assert record == ["-P -m core.cli runs"] and answer.stderr == ""


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("requirements.txt", "-r requirements.txt"),
        ("pyproject.toml", "--no-deps --no-build-isolation --editable ."),
    ],
)
def test_a_changed_file_is_noticed_and_only_its_step_repeated(checkout, changed, again):
    start(checkout)
    with (checkout / changed).open("a") as file:
        file.write("\n# changed\n")
    assert installs(start(checkout)[1]) == [again]
    assert installs(start(checkout)[1]) == []


def test_a_moved_checkout_is_installed_anew(checkout):
    start(checkout)
    moved = checkout.rename(checkout.parent / "elsewhere")
    assert len(installs(start(moved)[1])) == 3


def test_without_words_the_board_is_opened(checkout):
    _, record = start(checkout)
    assert record[-1] == "-P -m core.cli board --open"
    _, record = start(checkout, "--help")
    assert record[-1] == "-P -m core.cli --help"


def test_test_installs_what_tests_need_and_becomes_pytest(checkout):
    _, record = start(checkout, "test", "-k", "two words")
    assert installs(record)[-1] == "-r requirements-test.txt"
    assert record[-1] == "-m pytest -k two words"


def test_whole_tiers_run_side_by_side(checkout):
    _, record = start(checkout, "test", "--slow")
    assert re.fullmatch(r"-m pytest -n [1-4] --dist loadfile --no-loadscope-reorder --slow", record[-1])
    _, record = start(checkout, "test", "tests/house.py", "--slow")
    assert record[-1] == "-m pytest tests/house.py --slow"


def test_a_failed_install_is_one_sentence_and_is_tried_again(checkout):
    answer, record = start(checkout, FAIL_ON="install")
    assert answer.returncode == 1 and "Traceback" not in answer.stderr
    assert "Installing the packages failed" in answer.stderr and not record[-1].startswith("-P")
    assert len(installs(start(checkout)[1])) == 3


def test_an_environment_without_pip_names_the_command(checkout):
    answer, _ = start(checkout, FAIL_ON="pip --version")
    assert answer.returncode == 1 and "-m ensurepip" in answer.stderr


def test_no_venv_needs_an_active_environment(checkout):
    answer, record = start(checkout, "--no-venv", "runs")
    assert answer.returncode == 1 and "none is active" in answer.stderr and record == []


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_no_venv_uses_the_active_environment(checkout, tmp_path, variable):
    _recorder(tmp_path / "active")
    shutil.rmtree(checkout / ".venv")
    answer, record = start(checkout, "--no-venv", "runs", **{variable: str(tmp_path / "active")})
    assert answer.returncode == 0 and record[-1] == "-P -m core.cli runs"
    assert not (checkout / ".venv").exists()


def test_of_two_at_once_one_installs_and_the_other_waits(checkout):
    record = checkout.parent / "record"
    environment = {**os.environ, "RECORD": str(record), "FAIL_ON": "no such words", "SLOW": "0.5"}
    both = [
        subprocess.Popen(
            [sys.executable, checkout / "launch.py", word], env=environment, stderr=subprocess.PIPE
        )
        for word in ("runs", "env")
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(installs(record.read_text().splitlines())) == 3
    assert sum("Another launch.py is installing" in text for text in said) <= 1


def test_an_old_python_gets_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    answer = launch.main([])
    assert answer.startswith("Factory needs Python 3.11 or newer")


def test_an_old_python_can_read_the_file():
    ast.parse((ROOT / "launch.py").read_text(), feature_version=(3, 7))


def test_a_python_that_cannot_make_environments_names_the_package(checkout, monkeypatch):
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    assert "apt install python3-venv" in launch._make(checkout / "new")


def test_every_requirement_is_pinned_exactly_and_has_its_reason():
    for name in ("requirements.txt", "requirements-test.txt", "requirements-embedded.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith("#"):
                assert "==" in line.split("#")[0] and ">" not in line.split("#")[0], line
    first = [
        line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"
    ][0]
    assert first.startswith("torch==") and "+" not in first.split("#")[0]


def test_the_pins_lie_in_the_ranges_of_pyproject():
    import tomllib

    from packaging.requirements import Requirement

    pins = {}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line.split("#")[0].strip())
            pins[pin.name.lower().replace("_", "-")] = next(iter(pin.specifier)).version
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[wanted.name.lower().replace("_", "-")]), text
