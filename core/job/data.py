"""The data part of a job: which files, how they are read, what is held out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from core.job.base import Spec


class DataSpec(Spec):
    """The rows to learn from. A bare path is short for {path: ...}."""

    path: str = Field(min_length=1, max_length=4096)
    """A file with the training rows."""
    eval: float | str | None = None
    """Held-out rows: a share of the data (0.05), or a file of their own."""


def expand_data(value: Any) -> Any:
    """The long form of the shorthand `data: path`."""
    return {"path": value} if isinstance(value, str) else value
