"""What people say of answers, as rows to learn from, in HOME/data, where jobs and the Data page find them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.chat.settings import turns_of
from core.runs.storage import refusal
from data.errors import refuse

FEEDBACK, PREFERENCES, EDITED = "chat-feedback.jsonl", "chat-preferences.jsonl", "chat-edited.jsonl"
"""Good and bad answers (kto); pairs of a better and a worse one (dpo, reward, orpo); corrected answers (sft)."""


@dataclass(frozen=True)
class Saved:
    """Where a row went, and how many are there now."""

    path: Path
    rows: int

    def to_json(self) -> dict[str, Any]:
        """For REST."""
        return {"file": self.path.name, "path": str(self.path), "rows": self.rows}


def rate(home: Path, turns: Sequence[Mapping[str, str]], answer: str, *, good: bool) -> Saved:
    """Keep a good or bad answer to a conversation. Raises FactoryError when the disk does not take it."""
    prompt, completion = _parts(turns, answer)
    return append(home, FEEDBACK, {"prompt": prompt, "completion": completion, "label": good})


def prefer(home: Path, turns: Sequence[Mapping[str, str]], chosen: str, rejected: str) -> Saved:
    """Keep which of two answers was better. Raises FactoryError for two that are alike."""
    if chosen.strip() == rejected.strip():
        raise refuse("answers_alike", "Both answers are the same: there is nothing to prefer.")
    prompt, better = _parts(turns, chosen)
    row = {"prompt": prompt, "chosen": better, "rejected": _parts(turns, rejected)[1]}
    return append(home, PREFERENCES, row)


def correct(home: Path, turns: Sequence[Mapping[str, str]], answer: str, better: str) -> list[Saved]:
    """Keep a corrected answer: as a conversation to learn, and as preferred to what the model said."""
    prompt, completion = _parts(turns, better)
    if better.strip() == answer.strip():
        raise refuse(
            "answers_alike", "The answer was not changed: there is nothing to keep; rate it as good instead."
        )
    saved = [append(home, EDITED, {"messages": [*prompt, *completion]})]
    return [*saved, prefer(home, turns, better, answer)] if answer.strip() else saved


def append(home: Path, name: str, row: Mapping[str, Any]) -> Saved:
    """Add one line to a file of the data folder, whole or not at all, also when several do so at once.

    Raises FactoryError when the disk does not take it.
    """
    path = home / "data" / name
    line = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = file.seek(0, os.SEEK_END)
            if before and os.pread(file.fileno(), 1, before - 1) != b"\n":
                line = b"\n" + line  # somebody wrote there by hand, or was cut off
            try:
                _write(file.fileno(), line)
            except OSError:
                os.ftruncate(file.fileno(), before)
                raise
            file.seek(0)
            rows = sum(1 for one in file if one.strip())
    except OSError as error:
        raise refusal(error, path) from error
    return Saved(path, rows)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


def _parts(
    turns: Sequence[Mapping[str, str]], answer: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    prompt = turns_of(list(turns))
    if prompt[-1]["role"] not in ("user", "tool"):
        text = "The conversation must end with what was asked: leave the answer out of it."
        raise refuse("messages_end_wrong", text, field="messages", value=prompt[-1]["role"])
    if not answer.strip():
        raise refuse(
            "answer_empty", "An empty answer teaches nothing; write one, or rate another.", field="answer"
        )
    return prompt, turns_of([{"role": "assistant", "content": answer}])
