"""Candidate answers with scores or ranks to preference rows: one way for all formats that have them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from data.rows import Row, Unusable
from data.settings import Choices


def pairs_of(
    prompt: Any, answers: Sequence[tuple[str, float]], choices: Choices, as_turns: bool = False
) -> list[Any]:
    """Preference rows from (answer, score; higher is better): best against worst, or every pair that differs.

    Ties and identical texts come out as Unusable in the row's place, so that they are counted.
    """
    if len(answers) < 2:
        raise Unusable("no_pair", str(answers[0][0])[:80] if answers else "")
    ordered = sorted(answers, key=lambda one: -one[1])
    couples = (
        [(ordered[0], ordered[-1])]
        if choices.pairs == "best_vs_worst"
        else itertools.combinations(ordered, 2)
    )
    rows: list[Row | Unusable] = []
    for better, worse in couples:
        if better[0] == worse[0]:
            rows.append(Unusable("same_answers", better[0][:80]))
        elif better[1] == worse[1]:
            rows.append(Unusable("tie", f"{better[0][:60]} | {worse[0][:60]}"))
        else:
            chosen, rejected = better[0], worse[0]
            made = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
            rows.append(
                {**made, "chosen": [_answer(chosen)], "rejected": [_answer(rejected)]} if as_turns else made
            )
    return rows


def _answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def number(value: Any) -> float:
    """A score as a number. Raises Unusable('score_unclear')."""
    if isinstance(value, bool):
        raise Unusable("score_unclear", str(value))
    try:
        made = float(value)
    except (TypeError, ValueError):
        raise Unusable("score_unclear", str(value)[:80]) from None
    if made != made:
        raise Unusable("score_unclear", str(value)[:80])
    return made
