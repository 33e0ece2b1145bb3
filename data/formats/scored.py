"""A prompt and a response per row with scores (HelpSteer, reward scores): rows of one prompt are compared."""

from __future__ import annotations

from collections.abc import Iterable

from data.errors import Finding
from data.formats.base import Column, Columns, Gathered, Given, Match, Record, chat, mapping, text_cell
from data.formats.pairs import number, pairs_of
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "scored"
ABOUT = "a prompt, a response and one or more scores per row (HelpSteer, reward scores)"
GIVES = ("preference", "feedback")
GATHERS = ("preference",)
SINGLE = ("reward", "score", "rating", "overall_score")
FIRST = ("helpfulness", "overall", "quality")


def matches(columns: Columns, given: Given) -> Match | None:
    """A prompt and a response with a score column by name, or with several columns of small whole numbers."""
    prompt = columns.text("prompt", ("prompt", "question", "instruction", "query"), given)
    response = columns.text("response", ("response", "answer", "completion", "output"), given)
    if prompt is None or response is None:
        return None
    single = columns.find("score", SINGLE, given)
    numbers = [
        column for column in columns.all.values() if column not in (prompt, response) and _is_numbers(column)
    ]
    if single is not None and single in numbers:
        score = single
        gives: tuple[str, ...] = GIVES
    elif len(numbers) >= 2:
        score = next(
            (c for name in FIRST if (c := columns.find("", (name,), {})) in numbers and c), numbers[0]
        )
        gives = ("preference", "feedback", "messages")
    else:
        return None
    border = _border(score)
    ask = Finding(
        "data_score_border",
        f"Column {score.name} decides (data.score picks another); for good/bad labels, answers from {border:g} on are "
        "good (data.threshold).",
        "note",
        "data.threshold",
        border,
    )
    found = {**mapping(prompt=prompt, response=response, score=score), "border": str(border)}
    return Match(NAME, 0.9, found, f"columns {prompt.name}, {response.name} and scores", (ask,), gives)


def _is_numbers(column: Column) -> bool:
    if not column.values:
        return False
    try:
        for value in column.values:
            number(value)
    except Unusable:
        return False
    return True


def _border(score: Column) -> float:
    """Where good begins: above zero when scores go below it, else the middle of those seen."""
    values = [number(value) for value in score.values]
    return 0.0 if min(values) < 0 else (min(values) + max(values)) / 2


def gather(
    items: Iterable[tuple[int, Record | Unusable]], shape: str, match: Match, choices: Choices
) -> Gathered:
    """Rows grouped by prompt: {prompt, answers: [[response, score], ...]}."""
    groups: dict[str, tuple[int, list[list[object]]]] = {}
    column = choices.score or match.columns["score"]
    for line, record in items:
        if isinstance(record, Unusable):
            yield line, record
            continue
        try:
            prompt = text_cell(record, match.columns["prompt"])
            answer = [text_cell(record, match.columns["response"]), number(record.get(column))]
        except Unusable as reason:
            yield line, reason
            continue
        groups.setdefault(prompt, (line, []))[1].append(answer)
    for prompt, (line, answers) in groups.items():
        yield line, {"prompt": prompt, "answers": answers}


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """Pairs of a group; or one labelled row; or, for conversations, one row at or above the threshold if one is set."""
    if shape == "preference":
        return pairs_of(record["prompt"], [(text, score) for text, score in record["answers"]], choices)
    prompt = text_cell(record, match.columns["prompt"])
    response = text_cell(record, match.columns["response"])
    score = number(record.get(choices.score or match.columns["score"]))
    if shape == "messages":
        if choices.threshold is not None and score < choices.threshold:
            raise Unusable("below_threshold", f"{score:g}")
        return [chat(prompt, response)]
    border = float(match.columns["border"]) if choices.threshold is None else choices.threshold
    good = score >= border if border or choices.threshold is not None else score > 0
    return [{"prompt": prompt, "completion": response, "label": good}]
