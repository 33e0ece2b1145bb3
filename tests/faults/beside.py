"""Leaves a process behind that has left its family, ignores the end of it, and becomes the command that follows.

`python -m tests.faults.beside COMMAND...`, as a training process whose libraries start helpers of their own.
"""

from __future__ import annotations

import os
import signal
import sys
import time

if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
        os._exit(0)
    os.wait()
    os.execv(sys.argv[1], sys.argv[1:])
