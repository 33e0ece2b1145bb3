"""The one small process that owns a run: `python core/runs/supervisor.py RUN_DIR TICKET`.

It holds the run's lock (a descriptor it was born with) and waits in the queue; with its slots it becomes the keeper of
the training process (core/runs/attempt.py). It outlives the terminal and the server that started it; when it is killed
the kernel frees its locks and tells the training process, and readers see a lost run.

Hundreds of supervisors may wait at once, so a waiting one is little more than the bare interpreter: this file and what
it imports do without pathlib, dataclasses and typing, which would take 3 MiB more.
"""

from __future__ import annotations

import os
import sys

from core.runs.queue import Grant, Queue
from core.runs.watch import Watch


def main(arguments: list[str]) -> int:
    """Own the run whose folder is named; its lock and its ticket are open descriptors of this process."""
    os.chdir("/")
    folder, ticket = arguments
    watch = Watch(folder)
    grant = problem = None
    try:
        grant = wait_in_line(folder, ticket, watch)
    except Exception as error:
        problem = error
    return attend(folder, watch, grant, problem)


def wait_in_line(folder: str, ticket: str, watch: Watch) -> Grant | None:
    """Sleep until the slots are ours; None when the run was cancelled meanwhile."""
    queue = Queue()
    while not watch.stop_request():
        answer = queue.try_take(ticket, folder)
        if isinstance(answer, Grant):
            return answer
        watch.sleep_until_one_ends(answer.holders)
    queue.leave(ticket)
    return None


def attend(folder: str, watch: Watch, grant: Grant | None, problem: Exception | None) -> int:
    """Train in the slots that were granted, or write why that will not be."""
    from pathlib import Path

    from core.runs.attempt import Attempt
    from core.runs.folder import Run

    attempt = Attempt(Run(Path(folder)), watch, grant)
    try:
        if problem is not None:
            raise problem
        attempt.main()
    except Exception as error:
        import traceback

        traceback.print_exc()
        attempt.give_up(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
