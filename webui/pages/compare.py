"""Several runs beside each other."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "compare"
PATH = "/compare"


def build(home: Path) -> None:
    """The page's frame; static/js/compare.js fills it."""
    shell(NAME)
