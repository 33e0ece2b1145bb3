"""Who else computes on the GPUs, as nvidia-smi tells. Nothing is found where there is no nvidia-smi. Stdlib only."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU. Memory in MiB."""

    pid: int
    name: str
    memory_mib: int


def foreign_processes(timeout: float = 10.0) -> dict[str, list[Process]]:
    """Compute processes per slot (`gpu0`: ...). On a slot whose lock was free, all of them are foreign.

    Empty where nvidia-smi is missing, fails or takes longer than `timeout` seconds: not knowing blocks nobody.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        numbers = _query(tool, "gpu=index,uuid", timeout)
        apps = _query(tool, "compute-apps=gpu_uuid,pid,used_memory,process_name", timeout)
    except (OSError, subprocess.SubprocessError):
        return {}
    return match(numbers, apps)


def company(slots: Collection[str]) -> list[str]:
    """A sentence for each of these slots that somebody else computes on too."""
    if not any(name.startswith("gpu") for name in slots):
        return []
    told = []
    for name, others in foreign_processes().items():
        if name in slots:
            who = ", ".join(f"{one.name} (pid {one.pid}, {one.memory_mib} MiB)" for one in others)
            told.append(f"{name} is also used by {who}, which is no run of Factory: memory may run out.")
    return told


def match(numbers: list[list[str]], apps: list[list[str]]) -> dict[str, list[Process]]:
    """Processes per slot from the rows of nvidia-smi: (index, uuid) and (uuid, pid, MiB, name)."""
    slots = {row[1]: f"gpu{row[0]}" for row in numbers if len(row) == 2}
    found: dict[str, list[Process]] = {}
    for row in apps:
        if len(row) >= 4 and row[0] in slots and row[1].isdigit():
            memory = int(row[2]) if row[2].isdigit() else 0  # "[N/A]" inside containers
            found.setdefault(slots[row[0]], []).append(Process(int(row[1]), ", ".join(row[3:]), memory))
    return found


def _query(tool: str, what: str, timeout: float) -> list[list[str]]:
    done = subprocess.run(
        [tool, f"--query-{what}", "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=True,
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
