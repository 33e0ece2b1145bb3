"""What the machine says of itself."""

from __future__ import annotations

import os
import stat
import subprocess
from importlib import metadata

import pytest

from core.job import machine


def test_this_machine_is_seen_as_this_process_may_use_it():
    seen = machine.this_machine()
    assert 1 <= seen.cores <= (os.cpu_count() or 1)
    assert 0 < seen.memory_free <= seen.memory
    assert seen.to_json()["python"].startswith("3.")


def test_installed_versions_are_told_without_importing():
    found = machine.versions()
    assert found["pydantic"] and set(found) == set(machine.PACKAGES)
    assert machine.installed("no-such-package-anywhere") is None


def test_free_space_is_asked_where_the_folder_will_be(tmp_path):
    assert machine.disk_free(tmp_path / "not" / "yet") > 0


def test_gpus_are_read_from_the_tool_and_odd_answers_count_as_zero():
    first, second = machine.read_gpus(
        "0, NVIDIA H200, 143771, 143154, 9.0, 550.54\n1, Old card, [N/A], 512, [Not Supported], 390.1\n\nnoise\n"
    )
    assert (first.name, first.memory, first.compute) == ("NVIDIA H200", 143771 * 2**20, 9.0)
    assert (second.index, second.memory, second.memory_free, second.compute) == (1, 0, 512 * 2**20, 0.0)


@pytest.mark.parametrize(
    ("script", "problem"), [("echo broken driver; exit 9", "broken driver"), ("exit 9", "failed")]
)
def test_a_gpu_tool_that_fails_is_a_problem_in_its_own_words(tmp_path, monkeypatch, script, problem):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seen = machine.this_machine()
    assert seen.gpus == () and problem in (seen.gpu_problem or "")


def test_a_gpu_is_seen_through_the_tool(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, NVIDIA H200, 143771, 143154, 9.0, 550.54'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.this_machine().has_gpu


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("100000 100000", 1), ("50000 100000", 1)]
)
def test_a_container_quota_lowers_the_cores(tmp_path, monkeypatch, quota, cores):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(machine, "_CGROUP_CPU", tmp_path / "cpu.max")
    assert machine.this_machine().cores == (cores or len(os.sched_getaffinity(0)))


def test_a_container_limit_lowers_the_memory(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{2**30}\n")
    monkeypatch.setattr(machine, "_CGROUP_MEMORY", (tmp_path / "none", tmp_path / "memory.max"))
    seen = machine.this_machine()
    assert seen.memory == 2**30 and seen.memory_free <= 2**30


def test_memory_is_what_the_system_says():
    import psutil

    total, available = machine._memory()
    assert total == psutil.virtual_memory().total
    assert 0 < available <= total


def test_versions_are_those_of_the_metadata():
    for package in ("pydantic", "typer", "numpy"):
        assert machine.installed(package) == metadata.version(package)


def test_a_checkout_is_known_by_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CHECKOUT", tmp_path)
    assert machine.git_state() is None

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    assert machine.git_state() is None
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "one")
    commit = git("rev-parse", "HEAD")
    assert machine.git_state() == {"commit": commit, "changed": False}
    (tmp_path / "file").write_text("2")
    assert machine.git_state() == {"commit": commit, "changed": True}
