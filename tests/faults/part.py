"""Stands in for one node's training processes: takes torchrun's words, meets the others, and trains nothing.

`python -m tests.faults.part BEHAVIOUR SECONDS --nnodes ... RUN_DIR`. Node 0 listens at the meeting place and the others
connect, as torch's store does, so that a wrong place is found out. The behaviours are those of stand_in; all but node 0
go on until their line is cut, as ranks do that wait for another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from core.nodes.link import split_endpoint
from core.runs.courier import events_file
from core.runs.folder import Run
from core.runs.journal import Journal
from tests.faults import stand_in

over = threading.Event()


def main(words: list[str]) -> int:
    """Meet, then node 0 behaves and the others wait for its end."""
    told = dict(zip(words, words[1:], strict=False))
    endpoint = split_endpoint(told["--rdzv-endpoint"])
    run = Run(Path(words[-1]))
    if told["--node-rank"] == "0":
        with socket.create_server(endpoint) as door:
            line, _ = door.accept()
            with line:
                signal.signal(signal.SIGTERM, stand_in._on_term)
                threading.Thread(target=fail_with_the_line, args=(line,), daemon=True).start()
                behave = getattr(stand_in, words[0])
                code: int = behave(run, Journal(events_file(run)), float(words[1]))
                over.set()
                line.sendall(str(code).encode())
                return code
    return other(endpoint, words[0])


def fail_with_the_line(line: socket.socket) -> None:
    """As a rank that loses another one."""
    with contextlib.suppress(OSError):
        line.recv(1)
    if not over.is_set():
        os._exit(1)


def other(endpoint: tuple[str, int], behaviour: str) -> int:
    """Any other node: ends with the code that node 0 sends, or fails when it is gone."""
    if behaviour == "late":  # as in the last moments of an interpreter
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    elif behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: None)
    for _ in range(100):
        try:
            line = socket.create_connection(endpoint, timeout=60)
            break
        except OSError:
            time.sleep(0.05)
    sys.stdout.write(f"interface {os.environ.get('GLOO_SOCKET_IFNAME')}\n")
    sys.stdout.flush()
    with line:
        told = line.recv(10)
        if behaviour == "late":
            time.sleep(30)
    if not told:
        sys.stdout.write("lost the other process\n")
        return 1
    return int(told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
