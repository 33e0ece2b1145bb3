"""Dolly: instruction, context, response."""

from __future__ import annotations

from data.errors import Finding
from data.formats.base import Columns, Given, Match, Record, chat, mapping, text_cell
from data.rows import Row
from data.settings import Choices

NAME = "dolly"
ABOUT = "instruction, context and response columns (Dolly)"
GIVES = ("messages",)


def matches(columns: Columns, given: Given) -> Match | None:
    """The columns instruction (or question), context and response (or answer)."""
    instruction = columns.text("instruction", ("instruction", "question"), given)
    context = columns.text("context", ("context", "passage"), given)
    response = columns.text("response", ("response", "answer", "output"), given)
    if instruction is None or context is None or response is None:
        return None
    ask = Finding(
        "data_context_order",
        "The context stands before the instruction, a blank line between them; data.context: last turns that round.",
        "note",
        "data.context",
        "first",
        fix={"data.context": "last"},
    )
    found = mapping(instruction=instruction, context=context, response=response)
    return Match(NAME, 0.97, found, "columns instruction, context and response", (ask,))


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One question and answer; an empty context leaves no trace."""
    question = text_cell(record, match.columns["instruction"])
    context = text_cell(record, match.columns["context"])
    if context.strip():
        parts = (context, question) if choices.context == "first" else (question, context)
        question = "\n\n".join(parts)
    return [chat(question, text_cell(record, match.columns["response"]))]
