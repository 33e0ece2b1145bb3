"""Every run: what it is, how far it is, what came out."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "runs"
PATH = "/"


def build(home: Path) -> None:
    """The page's frame; static/js/runs.js fills it."""
    shell(NAME)
