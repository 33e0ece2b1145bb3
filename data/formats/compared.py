"""Two answers side by side and who won: WebGPT comparisons (scores), arena battles (a winner column)."""

from __future__ import annotations

from typing import Any

from data.formats.base import Columns, Given, Match, Record, mapping, text_cell
from data.formats.pairs import number
from data.formats.turns import looks_like_turns, read_turns
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "compared"
ABOUT = "two answers side by side with scores or a winner (WebGPT, arena battles)"
GIVES = ("preference",)
SIDES = (
    ("answer_0", "answer_1"),
    ("answer_a", "answer_b"),
    ("response_a", "response_b"),
    ("conversation_a", "conversation_b"),
    ("response_0", "response_1"),
)
SCORES = (("score_0", "score_1"), ("score_a", "score_b"))
WINNERS = ("winner", "preference", "better")
_FIRST = {"model_a", "a", "answer_a", "response_a", "left", "1st", "first"}
_SECOND = {"model_b", "b", "answer_b", "response_b", "right", "2nd", "second"}


def matches(columns: Columns, given: Given) -> Match | None:
    """Two answer columns, and two scores or a winner."""
    for one, other in SIDES:
        first, second = columns.find("answer_a", (one,), given), columns.find("answer_b", (other,), given)
        if first is None or second is None:
            continue
        winner = columns.find("winner", WINNERS, given)
        scores = next(
            (
                pair
                for a, b in SCORES
                if all(pair := (columns.find("score_a", (a,), given), columns.find("score_b", (b,), given)))
            ),
            (None, None),
        )
        if winner is None and scores[0] is None:
            continue
        found = mapping(
            prompt=columns.find("prompt", ("question", "prompt", "instruction", "query"), given),
            answer_a=first,
            answer_b=second,
            score_a=scores[0],
            score_b=scores[1],
            winner=winner if scores[0] is None else None,
        )
        return Match(
            NAME,
            0.95,
            found,
            f"columns {first.name} and {second.name} with {'scores' if scores[0] else 'a winner'}",
        )
    return None


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """The winner is chosen. Ties are Unusable('tie')."""
    columns = match.columns
    first, second = record.get(columns["answer_a"]), record.get(columns["answer_b"])
    margin: float | None = None
    if "score_a" in columns:
        margin = number(record.get(columns["score_a"])) - number(record.get(columns["score_b"]))
        first_wins = margin > 0
        if margin == 0:
            raise Unusable("tie", _shown(first, second))
    else:
        first_wins = _winner(record.get(columns["winner"]), _shown(first, second))
    row = _row(record, match, *((first, second) if first_wins else (second, first)))
    return [row if margin is None else {**row, "margin": abs(margin)}]


def _row(record: Record, match: Match, better: Any, worse: Any) -> Row:
    if looks_like_turns(better) and looks_like_turns(worse):
        chosen, rejected = read_turns(better), read_turns(worse)
        return {"prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:]}
    if not isinstance(better, str) or not isinstance(worse, str) or "prompt" not in match.columns:
        raise Unusable("wrong_type", _shown(better, worse))
    value = record.get(match.columns["prompt"])
    if isinstance(value, dict):
        value = value.get("full_text") or value.get("text") or value.get("title")
    elif looks_like_turns(value):
        value = read_turns(value)
    prompt = value if isinstance(value, (str, list)) else text_cell(record, match.columns["prompt"])
    return {"prompt": prompt, "chosen": better, "rejected": worse}


def _winner(value: Any, shown: str) -> bool:
    word = str(value).strip().lower()
    if word in _FIRST:
        return True
    if word in _SECOND:
        return False
    if word.startswith("tie") or word in ("", "none", "both", "neither", "draw"):
        raise Unusable("tie", shown)
    raise Unusable("label_unclear", word[:80])


def _shown(first: Any, second: Any) -> str:
    return f"{str(first)[:60]} | {str(second)[:60]}"
