"""Alpaca: instruction, input, output; with system and history where they are there."""

from __future__ import annotations

from data.errors import Finding
from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.rows import Row, Turn, Unusable
from data.settings import Choices

NAME = "alpaca"
ABOUT = "instruction, input and output columns (Alpaca), with system and history where present"
GIVES = ("messages",)


def matches(columns: Columns, given: Given) -> Match | None:
    """The columns instruction and output, without dolly's context and response."""
    instruction = columns.text("instruction", ("instruction",), given)
    output = columns.text("output", ("output", "response"), given)
    if instruction is None or output is None or columns.find("context", ("context",), {}) is not None:
        return None
    extra = columns.find("input", ("input",), given)
    found = mapping(
        instruction=instruction,
        input=extra,
        output=output,
        system=columns.text("system", ("system", "system_prompt"), given),
        history=columns.find("history", ("history",), given),
    )
    ask = Finding(
        "data_separator",
        "Where input is not empty, it follows the instruction after a line break; data.separator sets something else.",
        "note",
        "data.separator",
        "\n",
        fix={"data.separator": "\n\n"},
    )
    filled = extra is not None and any(text.strip() for text in extra.texts)
    return Match(NAME, 0.97, found, "columns instruction and output", (ask,) if filled else ())


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One conversation: system, history, then instruction (+ input) and output."""
    columns = match.columns
    user = text_cell(record, columns["instruction"])
    more = record.get(columns["input"]) if "input" in columns else None
    if more:
        more = text_cell(record, columns["input"])
        if more.strip():
            user = user + choices.separator + more if user else more
    turns: list[Turn] = []
    system = record.get(columns["system"]) if "system" in columns else None
    if isinstance(system, str) and system.strip():
        turns.append({"role": "system", "content": system})
    history = record.get(columns["history"]) if "history" in columns else None
    if history:
        turns += _earlier(history)
    turns.append({"role": "user", "content": user})
    turns.append({"role": "assistant", "content": text_cell(record, columns["output"])})
    return [{"messages": turns}]


def _earlier(history: object) -> list[Turn]:
    if not isinstance(history, list):
        raise Unusable("wrong_type", f"history: {history!r}"[:160])
    turns: list[Turn] = []
    for pair in history:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Unusable("wrong_type", f"history: {pair!r}"[:160])
        turns += [{"role": "user", "content": str(pair[0])}, {"role": "assistant", "content": str(pair[1])}]
    return turns
