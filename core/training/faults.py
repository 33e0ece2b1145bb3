"""What went wrong, in words: exceptions of the libraries and the system turned into findings with a stable code."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from data.errors import FactoryError, Finding
from data.words import byte_size

_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
"""What CUDA, torch's CPU allocator and the system say when memory ran out."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def explain(problem: BaseException, folder: Path) -> tuple[Finding, ...]:
    """Findings for an exception that ended a run whose files lie in `folder`; an unknown one says where to look."""
    if isinstance(problem, FactoryError):
        return problem.findings
    if is_disk_full(problem, folder):
        return (_disk_full_finding(folder),)
    if is_out_of_memory(problem):
        return (
            Finding(
                "out_of_memory",
                "memory ran out; lower train.batch_size or stage.max_length, or set train.gradient_checkpointing.",
                field="train.batch_size",
            ),
        )
    if isinstance(problem, OSError) and problem.errno in (errno.EIO, errno.EROFS):
        name = errno.errorcode[problem.errno]
        return (
            Finding(
                "storage_error",
                f"the disk under {str(folder)!r} failed ({name}: {os.strerror(problem.errno)}); "
                "nothing after the last checkpoint event is saved: check the disk, then resume.",
                params={"errno": name},
            ),
        )
    first = (str(problem).strip().splitlines() or [""])[0][:300]
    return (
        Finding(
            "internal_error",
            f"the training process failed with {type(problem).__name__}: {first}; the traceback is in log.txt.",
            params={"type": type(problem).__name__},
        ),
    )


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether memory ran out, in whatever words."""
    return isinstance(problem, MemoryError) or any(words in str(problem).lower() for words in _NO_MEMORY)


def is_disk_full(problem: BaseException, folder: Path) -> bool:
    """Whether a write to `folder` met a full disk, in whatever words."""
    if isinstance(problem, OSError) and problem.errno in _FULL:
        return True
    text = str(problem)
    # torch's and safetensors' writers report a full disk as plain errors of their own (torch 2.13, safetensors 0.8)
    writer_failed = "PytorchStreamWriter" in text or "inline_container" in text or "unexpected pos" in text
    return "No space left" in text or "File too large" in text or (writer_failed and _free(folder) < 64 << 20)


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _disk_full_finding(folder: Path) -> Finding:
    free = _free(folder)
    return Finding(
        "disk_full",
        f"the disk under {str(folder)!r} is full ({byte_size(free)} free); free space and resume the run: "
        "everything up to its last checkpoint is safe.",
        params={"free": free},
    )
