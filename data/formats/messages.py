"""Conversations as a list of turns: OpenAI messages, ShareGPT, and their dialects; tools, reasoning, weights."""

from __future__ import annotations

from typing import Any

from data.formats.base import Columns, Given, Match, Record, mapping
from data.formats.turns import ROLE_KEYS, looks_like_turns, read_tools, read_turns
from data.rows import ROLE_WORDS, Row, Unusable
from data.settings import Choices

NAME = "messages"
ABOUT = "conversations as a list of turns (OpenAI messages, ShareGPT and their dialects)"
GIVES = ("messages",)
COLUMNS = ("messages", "conversations", "conversation", "items", "dialog", "dialogue", "chat", "turns")
IMAGES = ("images", "image", "videos", "audios")


def matches(columns: Columns, given: Given) -> Match | None:
    """A column of turns, by name or as the only one of its kind."""
    if "messages" in given:
        named = columns.all.get(given["messages"])
        found = [named] if named is not None and named.is_turns else []
    else:
        by_name = [columns.find(name, (name,), {}) for name in COLUMNS]
        found = [column for column in by_name if column is not None and column.is_turns]
        if not found:
            found = [column for column in columns.all.values() if column.is_turns]
            found = found if len(found) == 1 else []
    if not found:
        return None
    answered = [_answered(value) for column in found for value in column.values]
    names = " / ".join(dict.fromkeys(column.name for column in found))
    tools = columns.find("tools", ("tools", "functions"), given)
    system = columns.text("system", ("system", "system_prompt"), given)
    images = next(
        (c for n in IMAGES if (c := columns.find(n, (n,), {})) is not None and set(c.kinds) - {"null"}), None
    )
    return Match(
        NAME,
        # Turns that mostly end with a question are prompts; only where nothing else fits they are conversations.
        0.5 if 2 * sum(answered) <= len(answered) else 0.98 if fold_known(names) else 0.85,
        {"messages": names, **mapping(tools=tools, system=system, images=images)},
        f"column {names} holds lists of turns with a role and a text",
    )


def fold_known(names: str) -> bool:
    """True when the column has one of the usual names."""
    return names.split(" / ")[0] in COLUMNS


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One messages row."""
    refuse_images(record, match)
    turns = read_turns(_turns_of(record, match.columns["messages"]))
    system = record.get(match.columns["system"]) if "system" in match.columns else None
    if isinstance(system, str) and system.strip() and (not turns or turns[0]["role"] != "system"):
        turns = [{"role": "system", "content": system}, *turns]
    row: Row = {"messages": turns}
    if "tools" in match.columns:
        tools = read_tools(record.get(match.columns["tools"]))
        if tools:
            row["tools"] = tools
    return [row]


def refuse_images(record: Record, match: Match) -> None:
    """Raise Unusable('image') for a record that brings pictures, naming the column."""
    column = match.columns.get("images")
    if column is not None and record.get(column):
        raise Unusable("image", column)


def _turns_of(record: Record, names: str) -> Any:
    for name in names.split(" / "):
        value = record.get(name)
        if value is not None and (isinstance(value, list) or looks_like_turns(value)):
            return value
    raise Unusable("missing_column", names)


def _answered(value: Any) -> bool:
    """True for turns that do not end with the user's."""
    if isinstance(value, dict):
        value = next((cells for key, cells in value.items() if key in ROLE_KEYS), [])
        words = [str(word) for word in value]
    elif isinstance(value, list):
        words = [
            str(next((turn[key] for key in ROLE_KEYS if key in turn), ""))
            for turn in value[-1:]
            if isinstance(turn, dict)
        ]
    else:
        return False
    return bool(words) and ROLE_WORDS.get(words[-1].strip().lower()) != "user"
