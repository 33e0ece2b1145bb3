"""A look at the first rows of a file, without a tokenizer: what is wrong, how long they are, what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from data.child import ask_child
from data.errors import FactoryError
from data.inspect import request_for, shape_findings, total
from data.report import drop_findings, file_findings, limit_of, note_findings, nothing_left
from data.settings import DataSettings
from data.sources import resolve, total_bytes

ROWS, SECONDS = 200, 10.0
"""How many rows are looked at, and for how long at most, unless all are asked for."""


@dataclass
class Look:
    """What the rows seen so far say. Lengths are characters."""

    rows: int = 0
    whole: bool = True
    """Whether these were all rows."""
    characters: int = 0
    longest: int = 0
    longest_prompt: int = 0
    columns: list[str] = field(default_factory=list)
    """Columns of the rows, free ones included."""
    over: int = 0
    """Rows (answers of a pair apart) longer than the room asked about."""
    prompts_over: int = 0
    """Rows whose prompt alone is."""
    same_within: int = 0
    """Pairs that do not differ within that room."""
    answers: int = 0
    """Characters of answers, of all `characters`."""
    chats: int = 0
    """Rows that are chats, or have a chat for a prompt."""
    labels: dict[str, int] = field(default_factory=dict)
    """Rows by their label, for rows that have one."""
    findings: list[dict[str, Any]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def look(
    data: Mapping[str, Any], needs: Sequence[str], stage: str | None, *, full: bool = False, room: int = 2**62
) -> Look:
    """Look at the first rows of the data, or at all with `full`; `room` is a length in characters to compare with.

    Nothing is raised for bad data.
    """
    wish = DataSettings.from_plain(data)
    seen, labels, columns = Look(), Counter[str](), dict[str, None]()
    limit = None if full else ROWS
    try:
        resolved = resolve(wish)
        request = {**request_for(wish, resolved, needs, stage), "do": "rows", "limit": limit}
        end: dict[str, Any] = {}
        size = total_bytes(resolved)
        frames = ask_child(request, size) if full else ask_child(request, size, wall_seconds=SECONDS)
        for frame in frames:
            for row in frame.get("rows", ()):
                _count(row, room, seen, labels, columns)
            end = frame.get("end", end)
    except FactoryError as error:
        return Look(findings=[one.to_json() for one in error.findings])
    tally = total(end)
    if not tally.kept:
        return Look(findings=[one.to_json() for one in nothing_left([tally], limit=limit_of(needs)).findings])
    told = [*file_findings(end), *shape_findings(end, stage), *drop_findings(tally), *note_findings(tally)]
    seen.whole = full or seen.rows < ROWS
    seen.labels, seen.columns = dict(labels), list(columns)
    seen.findings = [one.to_json() for one in told]
    return seen


def _count(
    row: Mapping[str, Any], room: int, seen: Look, labels: Counter[str], columns: dict[str, None]
) -> None:
    turns = row.get("messages") or []
    prompt, whole = text_length(row.get("prompt")), text_length(turns) + text_length(row.get("text"))
    answers = [text_length(row[name]) for name in ("completion", "chosen", "rejected") if name in row]
    longest = prompt + whole + max(answers, default=0)
    said = sum(answers) // len(answers) if answers else whole - _asked(turns)
    before = prompt + text_length(list(takewhile(lambda turn: turn.get("role") != "assistant", turns)))
    seen.rows += 1
    seen.longest = max(seen.longest, longest)
    seen.characters += prompt + whole + (said if answers else 0)
    seen.answers += said
    seen.longest_prompt = max(seen.longest_prompt, before)
    seen.over += longest > room
    seen.prompts_over += before > room
    seen.same_within += "chosen" in row and prompt + _shared(row["chosen"], row["rejected"]) >= room
    seen.chats += isinstance(row.get("messages") or row.get("prompt"), list)
    columns.update(dict.fromkeys(name for name in row if name != "extra"))
    columns.update(dict.fromkeys(row.get("extra") or {}))
    if "label" in row:
        labels["good" if row["label"] else "bad"] += 1


def _asked(turns: Any) -> int:
    """Characters of the turns of a chat that are not the assistant's."""
    return text_length([turn for turn in turns or () if turn.get("role") != "assistant"])


def _shared(chosen: Any, rejected: Any) -> int:
    """Characters in which two answers begin alike."""
    first, second = (
        one if isinstance(one, str) else "".join(turn.get("content") or "" for turn in one)
        for one in (chosen, rejected)
    )
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def text_length(part: Any) -> int:
    """Characters of a text, or of all turns of a chat."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, list):
        return sum(len(turn.get("content") or "") for turn in part if isinstance(turn, Mapping))
    return 0
