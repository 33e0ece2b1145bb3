"""A new run: from what somebody has to a job that can start."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "new"
PATH = "/new"


def build(home: Path) -> None:
    """The page's frame; static/js/new.js fills it."""
    shell(NAME)
