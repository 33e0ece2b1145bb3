"""Small files written by tests, and what comes out of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.detect import STAGE_NEEDS
from data.errors import Finding
from data.flow import Flow
from data.prepare import Prepared, prepare
from data.settings import DataSettings
from data.sources import resolve


def jsonl(path: Path, rows: Sequence[Any]) -> Path:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def flow(path: Path | str, stage: str = "sft", **settings: Any) -> tuple[list[dict[str, Any]], Flow]:
    """The canonical rows of a file for a stage (read in this process), and the flow with its tallies."""
    wish = DataSettings.from_plain({"path": str(path), **settings})
    made = Flow(resolve(wish), STAGE_NEEDS[stage], wish.choices, stage)
    return [row for _, _, row in made], made


def prepared(
    data: Path | str | Mapping[str, Any], tokenizer: Any, cache: Path, stage: str = "sft", **settings: Any
) -> tuple[Prepared, list[Finding]]:
    """Prepared rows and the findings told on the way."""
    told: list[Finding] = []
    plain = data if isinstance(data, Mapping) else {"path": str(data)}
    how = {"max_length": 128, "stage": stage, **settings}
    if stage == "pretrain":
        how = {"split_long": True, "train_on": "all", **how}
    return prepare(plain, STAGE_NEEDS[stage], tokenizer, how, cache, told.append), told


def arrow_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a prepared Arrow file."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        return pyarrow.ipc.open_stream(source).read_all().to_pylist()
