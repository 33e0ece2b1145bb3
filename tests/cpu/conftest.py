"""Fixtures of training tests: the zygote, a tiny model, small data files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One process with the libraries imported, for the whole session."""
    process = Zygote()
    yield process
    process.close()


@pytest.fixture(scope="session")
def tiny(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny chat model."""
    folder = tmp_path_factory.mktemp("models") / "tiny chat"
    zygote.call("tests.tiny:save_tiny_at", folder=str(folder))
    return str(folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    return tmp_path / "home"


def chats(count: int) -> list[dict[str, Any]]:
    """Short conversations of different lengths, with one and two turns."""
    rows = []
    for number in range(count):
        turns = [("user", f"What is {number} and {number}?"), ("assistant", f"It is {2 * number}.")]
        if number % 3 == 0:
            turns += [("user", "Are you sure?"), ("assistant", "Yes, " + "quite " * (number % 5) + "sure.")]
        rows.append({"messages": [{"role": role, "content": content} for role, content in turns]})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    """Rows as JSON lines; the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)
