"""A look at the first rows of a file, without a tokenizer: what is wrong, how long they are, what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from data.child import ask_child
from data.errors import FactoryError, Finding
from data.inspect import request_for, shape_findings, total
from data.report import drop_findings, file_findings, note_findings, nothing_left
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
    labels: dict[str, int] = field(default_factory=dict)
    """Rows by their label, for rows that have one."""
    findings: list[dict[str, Any]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def look(data: Mapping[str, Any], needs: Sequence[str], stage: str | None, *, full: bool = False) -> Look:
    """Look at the first rows of the data, or at all with `full`. Nothing is raised for bad data."""
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
                _count(row, seen, labels, columns)
            end = frame.get("end", end)
    except FactoryError as error:
        return Look(findings=[one.to_json() for one in error.findings])
    tally = total(end)
    if not tally.kept:
        return Look(findings=[one.to_json() for one in nothing_left([tally]).findings])
    told = [*file_findings(end), *shape_findings(end, stage), *drop_findings(tally), *note_findings(tally)]
    seen.whole = full or seen.rows < ROWS
    seen.labels, seen.columns = dict(labels), list(columns)
    seen.findings = [one.to_json() for one in told]
    return seen


def findings_of(plain: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Findings from their plain form."""
    return [Finding(**{**one, "params": one["params"] or {}}) for one in plain]


def _count(row: Mapping[str, Any], seen: Look, labels: Counter[str], columns: dict[str, None]) -> None:
    seen.rows += 1
    prompt = text_length(row.get("prompt"))
    answers = [text_length(row[name]) for name in ("completion", "chosen", "rejected") if name in row]
    whole = prompt + text_length(row.get("messages")) + text_length(row.get("text"))
    seen.longest = max(seen.longest, whole + max(answers, default=0))
    seen.characters += whole + (sum(answers) // len(answers) if answers else 0)
    seen.longest_prompt = max(seen.longest_prompt, prompt)
    columns.update(dict.fromkeys(name for name in row if name != "extra"))
    columns.update(dict.fromkeys(row.get("extra") or {}))
    if "label" in row:
        labels["good" if row["label"] else "bad"] += 1


def text_length(part: Any) -> int:
    """Characters of a text, or of all turns of a chat."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, list):
        return sum(len(turn.get("content") or "") for turn in part if isinstance(turn, Mapping))
    return 0
