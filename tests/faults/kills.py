"""Kills a training process again and again at random moments and looks at what it left; runs inside the zygote."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.storage import write_json
from tests.cpu.jobs import submit


def kill_often(job: dict[str, Any], home: str, kills: int) -> dict[str, Any]:
    """Start, kill -9 at a random moment of its saving, check, resume, `kills` times."""
    from core.training.worker import main

    run = Run(Path(submit({**job, "train": job["train"] | {"max_steps": 10_000, "save_steps": 1}}, home)))
    moments, broken, unfinished = random.Random(7), [], 0
    for attempt in range(1, kills + 1):
        newest = checkpoints.newest_complete(run)
        checkpoints.clean(run)
        resume = newest.relative_to(run.path).as_posix() if newest else None
        write_json(run.attempt_json, {"attempt": attempt, "resume": resume})
        pid = os.fork()
        if pid == 0:
            os._exit(main(str(run.path)))
        _wait_for_steps(run, newest)
        time.sleep(moments.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        unfinished += any(
            not checkpoints.is_complete(folder) for folder in run.checkpoints.glob("checkpoint-*")
        )
        after = checkpoints.newest_complete(run)
        if after is None or not _loads(after):
            broken.append(str(after))
    return {"broken": broken, "killed": kills, "moments_with_an_unfinished_folder": unfinished}


def _wait_for_steps(run: Run, before: Path | None) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        newest = checkpoints.newest_complete(run)
        if newest is not None and newest != before:
            return
        time.sleep(0.005)
    raise AssertionError("no checkpoint within a minute")


def _loads(folder: Path) -> bool:
    import torch
    from safetensors.torch import load_file

    try:
        load_file(folder / "model.safetensors")
        torch.load(folder / "optimizer.pt", weights_only=True)
    except Exception:
        return False
    return True


def train_without_room(job: dict[str, Any], home: str) -> dict[str, Any]:
    """Train on a disk that has no room to spare for checkpoints."""
    from tests.cpu.jobs import train

    os.environ["FACTORY_DISK_SPARE"] = str(1 << 60)
    return train(job, home)
