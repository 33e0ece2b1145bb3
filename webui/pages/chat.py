"""Talk to a trained model beside its base."""

from __future__ import annotations

from pathlib import Path

from webui.pages.shell import shell

NAME = "chat"
PATH = "/chat"


def build(home: Path) -> None:
    """The page's frame; static/js/chat.js fills it."""
    shell(NAME)
