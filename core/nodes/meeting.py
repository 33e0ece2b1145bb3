"""Where the nodes of a run meet: a note of node 0 in the run folder, and what each node shows to be let in."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

from core.engines import engine_module
from core.job.environments import packages_of
from core.job.machine import git_state, versions
from core.runs.folder import Run
from core.runs.storage import read_json, write_json

NOTE = "nodes.json"
"""In the run folder. Its key lets in whoever can read the folder, and nobody else on the network."""
FOLDER = "nodes"
"""In the run folder: the output of every other node."""
SAME = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "deepspeed", "unsloth")
"""Libraries whose versions must be the same on all nodes: together they compute one result."""


def write_note(run: Run, endpoint: str, key: str, nodes: int) -> None:
    """Write where node 0 waits. Only this user may read it."""
    old = os.umask(0o077)
    try:
        (run.path / NOTE).unlink(missing_ok=True)
        write_json(run.path / NOTE, {"endpoint": endpoint, "key": key, "nodes": nodes})
    finally:
        os.umask(old)


def read_note(run: Run) -> dict[str, Any] | None:
    """The note of node 0; None when there is none (yet)."""
    try:
        found = read_json(run.path / NOTE)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def remove_note(run: Run) -> None:
    """Nobody is expected any more."""
    (run.path / NOTE).unlink(missing_ok=True)


def passport(run: Run, key: str, rank: int) -> dict[str, Any]:
    """What a node says first: the key, who it is, and what is installed on it for this run's engine."""
    name = (read_json(run.job_json).get("engine") or {}).get("name") or "trl"
    packages = packages_of(engine_module(name).ENVIRONMENT, run.home)
    git = git_state()
    return {
        "key": key,
        "rank": rank,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "versions": {name: version for name, version in versions(packages).items() if name in SAME},
        "commit": git["commit"] if git else None,
    }


def difference(plan: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """What a node has otherwise than the run was planned with, in words: `torch 2.8.0 instead of 2.9.0`."""
    planned, told = plan.get("versions") or {}, theirs.get("versions") or {}
    found = [
        f"{name} {told.get(name) or 'missing'} instead of {planned[name] or 'none'}"
        for name in SAME
        if name in planned and told.get(name) != planned[name]
    ]
    ours, other = (plan.get("git") or {}).get("commit"), theirs.get("commit")
    if ours and other and ours != other:
        found.append(f"Factory at commit {str(other)[:10]} instead of {ours[:10]}")
    return ", ".join(found) or None
