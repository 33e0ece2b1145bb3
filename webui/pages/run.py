"""One run, live: progress, curves, log, samples, checkpoints."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "run"
PATH = "/run"


def build(home: Path) -> None:
    """The page's frame; static/js/run.js fills it."""
    shell(NAME)
