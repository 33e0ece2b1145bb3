"""The files to learn from, as the model will see them."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "data"
PATH = "/data"


def build(home: Path) -> None:
    """The page's frame; static/js/data.js fills it."""
    shell(NAME)
