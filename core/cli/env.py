"""The word about this machine: env."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
