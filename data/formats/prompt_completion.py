"""A prompt and its completion, as texts or as lists of turns."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.formats.turns import looks_like_turns, read_tools, read_turns
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "prompt_completion"
ABOUT = "prompt and completion columns, texts or lists of turns; only the completion is learnt"
GIVES = ("completion",)


def matches(columns: Columns, given: Given) -> Match | None:
    """The columns prompt and completion, both of the same kind."""
    prompt = columns.find("prompt", ("prompt",), given)
    completion = columns.find("completion", ("completion",), given)
    if prompt is None or completion is None:
        return None
    if not ((prompt.is_text or prompt.is_turns) and (completion.is_text or completion.is_turns)):
        return None
    tools = columns.find("tools", ("tools",), given)
    return Match(
        NAME,
        0.97,
        mapping(prompt=prompt, completion=completion, tools=tools),
        "columns prompt and completion",
    )


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One completion row; texts stay texts, turns stay turns."""
    prompt, completion = record.get(match.columns["prompt"]), record.get(match.columns["completion"])
    row: Row
    if looks_like_turns(prompt) or looks_like_turns(completion):
        row = {"prompt": _turns(prompt, "user"), "completion": _turns(completion, "assistant")}
        tools = read_tools(record.get(match.columns["tools"])) if "tools" in match.columns else None
        if tools:
            row["tools"] = tools
    else:
        row = {
            "prompt": text_cell(record, match.columns["prompt"]),
            "completion": text_cell(record, match.columns["completion"]),
        }
    return [row]


def _turns(value: object, role: str) -> list[dict[str, object]]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if value is None:
        raise Unusable("missing_column", role)
    return read_turns(value)
