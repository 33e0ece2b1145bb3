"""What a person says about a run: a title, tags, a note. Kept in the run folder, beside what the machine says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.runs.folder import Run
from core.runs.storage import read_json, refusal, write_json
from data.errors import FactoryError, Finding

FILE = "about.json"
LONGEST_TITLE, LONGEST_TAG, LONGEST_NOTE, MOST_TAGS = 100, 32, 4000, 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control and half characters, and marks that turn the direction of writing: a title must not reorder the page."""


@dataclass(frozen=True)
class About:
    """Words about a run; empty ones where nobody said anything."""

    title: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


def read_about(run: Run) -> About:
    """What was said about a run. A missing or damaged file says nothing."""
    try:
        found = read_json(run.path / FILE)
    except (OSError, ValueError):
        return About()
    if not isinstance(found, dict):
        return About()
    tags = found.get("tags")
    words = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return About(_text(found.get("title")), tuple(words[:MOST_TAGS]), _text(found.get("note")))


def write_about(
    run: Run, *, title: str | None = None, tags: Sequence[str] | None = None, note: str | None = None
) -> About:
    """Change what is said about a run; what is None stays. Raises FactoryError for words that are too long."""
    old = read_about(run)
    new = About(
        old.title if title is None else title.strip(),
        old.tags if tags is None else tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip())),
        old.note if note is None else note.strip(),
    )
    if findings := list(_wrong(new)):
        raise FactoryError(findings)
    try:
        write_json(run.path / FILE, {**asdict(new), "tags": list(new.tags)})
    except OSError as error:
        raise refusal(error, run.path) from error
    return new


def _wrong(about: About) -> Any:
    limits = [("title", about.title, LONGEST_TITLE), ("note", about.note, LONGEST_NOTE)]
    limits += [("tags", tag, LONGEST_TAG) for tag in about.tags]
    for field, text, most in limits:
        if len(text) > most:
            words = f"{field} may have {most:,} characters, and {text[:20]!r}… has {len(text):,}; shorten it."
            yield Finding("text_too_long", words, field=field, value=len(text), params={"most": most})
        if _CONTROL.search(text) or (field != "note" and "\n" in text):
            words = f"{field} holds a control character or a line break; take it out."
            yield Finding("text_not_plain", words, field=field)
    if len(about.tags) > MOST_TAGS:
        words = f"a run may have {MOST_TAGS} tags, and these are {len(about.tags)}; leave some out."
        yield Finding("too_many_tags", words, field="tags", value=len(about.tags))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
