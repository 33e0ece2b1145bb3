"""Reading comprehension: paragraphs with questions (SQuAD, nested or flat)."""

from __future__ import annotations

from typing import Any

from data.formats.base import Columns, Given, Match, Record, chat
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "squad"
ABOUT = "paragraphs with questions and answers (SQuAD)"
GIVES = ("messages",)


def matches(columns: Columns, given: Given) -> Match | None:
    """Nested paragraphs with qas, or the flat columns context, question, answers {text: [...]}."""
    nested = columns.find("paragraphs", ("paragraphs",), given)
    if nested is not None and any(_has_questions(value) for value in nested.values):
        return Match(NAME, 0.98, {"paragraphs": nested.name}, "keys paragraphs and qas")
    flat = [columns.find(word, (word,), given) for word in ("context", "question", "answers")]
    if all(flat) and any(isinstance(value, dict) and "text" in value for value in flat[2].values):  # type: ignore[union-attr]
        return Match(NAME, 0.95, {c.name: c.name for c in flat if c}, "columns context, question and answers")
    return None


def _has_questions(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) and "qas" in one for one in value)


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One row per question; those without an answer come out as Unusable('unanswerable')."""
    if "paragraphs" not in match.columns:
        words = match.columns
        answers = record.get(words["answers"])
        texts = answers.get("text") if isinstance(answers, dict) else None
        return [
            _row(
                str(record.get(words["context"]) or ""),
                str(record.get(words["question"]) or ""),
                texts,
                choices,
            )
        ]
    rows: list[Any] = []
    for paragraph in record.get(match.columns["paragraphs"]) or []:
        for asked in paragraph.get("qas") or []:
            texts = [one.get("text") for one in asked.get("answers") or [] if isinstance(one, dict)]
            try:
                rows.append(
                    _row(
                        str(paragraph.get("context") or ""), str(asked.get("question") or ""), texts, choices
                    )
                )
            except Unusable as reason:
                rows.append(reason)
    if not rows:
        raise Unusable("empty_prompt")
    return rows


def _row(context: str, question: str, answers: Any, choices: Choices) -> Row:
    found = [str(text) for text in answers or [] if text]
    if not found:
        raise Unusable("unanswerable", question[:120])
    parts = (context, question) if choices.context == "first" else (question, context)
    return chat("\n\n".join(part for part in parts if part.strip()), found[0])
