"""Bases, adapters and results."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "models"
PATH = "/models"


def build(home: Path) -> None:
    """The page's frame; static/js/models.js fills it."""
    shell(NAME)
