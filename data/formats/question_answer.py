"""Two text columns: a question and its answer, by many names; any two text columns as a last guess."""

from __future__ import annotations

from data.errors import Finding
from data.formats.base import Column, Columns, Given, Match, Record, chat, mapping, text_cell
from data.rows import Row
from data.settings import Choices

NAME = "question_answer"
ABOUT = "two text columns, a question and its answer (question/answer, input/output, src/tgt, Q/A, ...)"
GIVES = ("messages",)
PAIRS = (
    ("question", "answer"),
    ("prompt", "response"),
    ("prompt", "answer"),
    ("prompt", "output"),
    ("query", "response"),
    ("query", "answer"),
    ("input", "output"),
    ("question", "response"),
    ("instruction", "answer"),
    ("instruction", "completion"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("q", "a"),
    ("source", "target"),
    ("src", "tgt"),
    ("problem", "solution"),
)
_TRANSLATIONS = ("source", "src")


def matches(columns: Columns, given: Given) -> Match | None:
    """A known pair of names; else, of exactly two text columns, the first is taken for the question."""
    for prompt_name, response_name in PAIRS:
        prompt = columns.text("prompt", (prompt_name,), given)
        response = columns.text("response", (response_name,), given)
        if prompt is not None and response is not None and prompt is not response:
            system = columns.text("system", ("system", "system_prompt"), given)
            asks = (_ask_instruction(),) if prompt_name in _TRANSLATIONS else ()
            found = mapping(prompt=prompt, response=response, system=system)
            return Match(NAME, 0.95, found, f"columns {prompt.name} and {response.name}", asks)
    texts = [column for column in columns.all.values() if column.is_text and _has_words(column)]
    if len(texts) == 2 and not given:
        return Match(
            NAME,
            0.5,
            mapping(prompt=texts[0], response=texts[1]),
            "two text columns; the first is taken for the question",
        )
    return None


def _has_words(column: Column) -> bool:
    return any(any(map(str.isalpha, text)) for text in column.texts)


def _ask_instruction() -> Finding:
    return Finding(
        "data_instruction",
        "The rows are pairs of texts without a task; data.instruction puts a line before each "
        "(Translate into English:).",
        "note",
        "data.instruction",
    )


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One question and answer."""
    question = text_cell(record, match.columns["prompt"])
    if choices.instruction and question.strip():
        question = f"{choices.instruction}\n{question}"
    return [
        chat(
            question,
            text_cell(record, match.columns["response"]),
            text_cell(record, match.columns.get("system")),
        )
    ]
