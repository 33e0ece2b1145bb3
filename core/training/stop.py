"""How a training process is asked to stop: SIGTERM, or a file named `stop` in the run folder."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any


class Stopped(BaseException):
    """The run was asked to stop. No Exception: no library may swallow it on its way out."""


class StopRequest:
    """Remembers that somebody asked. While nothing is worth saving, a request ends the process at once."""

    def __init__(self, stop_file: Path) -> None:
        self._file = stop_file
        self._asked = False
        self._finish_first = False

    def listen(self) -> None:
        """Take SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def finish_first(self, yes: bool) -> None:
        """From now on (`yes`) a request waits for the next step's end; or again interrupts whatever runs."""
        self._finish_first = yes

    def asked(self) -> bool:
        """Whether to stop at the next good moment."""
        return self._asked or self._file.exists()

    def check(self) -> None:
        """Raise Stopped when somebody asked."""
        if self.asked():
            raise Stopped

    def _on_signal(self, number: int, frame: Any) -> None:
        self._asked = True
        if not self._finish_first:
            raise Stopped
