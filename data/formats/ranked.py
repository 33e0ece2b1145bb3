"""One prompt with a list of candidate answers, each with a rank or a score (Nectar, UltraFeedback)."""

from __future__ import annotations

from typing import Any

from data.formats.base import Columns, Given, Match, Record, chat, mapping, text_cell
from data.formats.marked import is_hh, split_hh
from data.formats.pairs import number, pairs_of
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "ranked"
ABOUT = "a prompt with several answers that are ranked or scored (Nectar, UltraFeedback)"
GIVES = ("preference",)
LISTS = ("answers", "completions", "responses", "candidates")
TEXTS = ("answer", "response", "text", "completion", "content")
RANKS = ("rank",)
SCORES = ("overall_score", "score", "rating", "reward")


def matches(columns: Columns, given: Given) -> Match | None:
    """A list column of {answer, rank or score} beside a prompt."""
    answers = columns.find("answers", LISTS, given)
    prompt = columns.text("prompt", ("prompt", "instruction", "question", "query"), given)
    if answers is None or prompt is None:
        return None
    items = [
        one for value in answers.values if isinstance(value, list) for one in value if isinstance(one, dict)
    ]
    ranked = any(_first(one, RANKS) for one in items)
    if (
        not items
        or not any(_first(one, TEXTS) for one in items)
        or not (ranked or any(_first(o, SCORES) for o in items))
    ):
        return None
    # A ranking says which answer is good enough to learn; scores alone leave that open.
    gives = ("preference", "messages") if ranked else GIVES
    why = f"column {answers.name} holds answers with a {'rank' if ranked else 'score'}"
    return Match(NAME, 0.95, mapping(prompt=prompt, answers=answers), why, gives=gives)


def _first(one: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if one.get(name) is not None), None)


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """Pairs of better and worse answers; for conversations, the best answer."""
    text = text_cell(record, match.columns["prompt"])
    turns = [turn for turn in split_hh(text) if turn["content"]] if is_hh(text) else None
    value = record.get(match.columns["answers"])
    answers = [_scored(one) for one in value] if isinstance(value, list) else []
    if not answers:
        raise Unusable("empty_answer")
    if shape == "messages":
        best = max(answers, key=lambda one: one[1])[0]
        return [{"messages": [*turns, {"role": "assistant", "content": best}]} if turns else chat(text, best)]
    return pairs_of(turns or text, answers, choices, as_turns=turns is not None)


def _scored(one: Any) -> tuple[str, float]:
    """(answer, score; higher is better, so a rank counts negative)."""
    if not isinstance(one, dict):
        raise Unusable("wrong_type", repr(one)[:160])
    text, rank, score = _first(one, TEXTS), _first(one, RANKS), _first(one, SCORES)
    if text is None or (rank is None and score is None):
        raise Unusable("score_unclear", repr(one)[:160])
    return str(one[text]), -number(one[rank]) if rank is not None else number(one[score or ""])
