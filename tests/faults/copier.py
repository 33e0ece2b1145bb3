"""Two processes of tests/faults/test_courier.py: `python -m tests.faults.copier RUN_DIR` carries what the machines of a
group write until a file `over` lies in the folder; with a number of events behind, it writes them, in torn pieces.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from core.runs.courier import Courier, name_for
from core.runs.folder import Run

GROUP = "slurm-7"


def carry(run: Run) -> int:
    """Until all is over."""
    courier = Courier(run, GROUP)
    while not (run.path / "over").exists():
        courier.carry()
        time.sleep(0.001)
    courier.carry(last=True)
    return 0


def write(run: Run, source: str, count: int) -> int:
    """Events in order, their lines in one to three pieces each, as a network hands them on."""
    draw = random.Random(source)
    file = os.open(run.path / name_for(source), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in range(count):
        event = {"event": "metric", "step": number, "values": {source: number}, "t": time.time()}
        text = json.dumps(event).encode() + b"\n"
        for _ in range(draw.randrange(3)):
            at = draw.randrange(len(text))
            os.write(file, text[:at])
            text = text[at:]
            time.sleep(0.0005)
        os.write(file, text)
    return 0


if __name__ == "__main__":
    folder = Run(Path(sys.argv[1]))
    sys.exit(write(folder, sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 2 else carry(folder))
