"""A question with options and the right one: columns A to D and a letter, or a list of choices and an index."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, chat, mapping, needed, text_cell
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "multiple_choice"
ABOUT = "a question with options A, B, C ... and the right letter, or a list of choices and an index"
GIVES = ("prompt", "messages")
LETTERS = "ABCDEFGHIJ"


def matches(columns: Columns, given: Given) -> Match | None:
    """Question and answer with columns A, B, ... or a list called choices or options."""
    question = columns.text("question", ("question", "prompt"), given)
    answer = columns.find("answer", ("answer", "label", "target"), given)
    if question is None or answer is None:
        return None
    listed = columns.find("choices", ("choices", "options"), given)
    if listed is not None and "texts" in listed.kinds:
        return Match(
            NAME, 0.95, mapping(question=question, choices=listed, answer=answer), f"column {listed.name}"
        )
    letters = [letter for letter in LETTERS if letter in columns.all or letter.lower() in columns.all]
    if letters[:2] != ["A", "B"]:
        return None
    found = {letter: letter if letter in columns.all else letter.lower() for letter in letters}
    return Match(
        NAME, 0.95, {**mapping(question=question, answer=answer), **found}, f"columns {', '.join(letters)}"
    )


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """The options under the question; the answer is the right letter."""
    if "choices" in match.columns:
        value = record.get(match.columns["choices"])
        options = [str(one) for one in value] if isinstance(value, list) else []
    else:
        options = [text_cell(record, match.columns[letter]) for letter in LETTERS if letter in match.columns]
    letter = _letter(record.get(match.columns["answer"]), len(options))
    lines = [f"{name}. {option}" for name, option in zip(LETTERS, options, strict=False) if option.strip()]
    prompt = "\n".join([needed(record, match.columns["question"], "empty_prompt"), *lines])
    return [chat(prompt, letter)] if shape == "messages" else [{"prompt": prompt, "answer": letter}]


def _letter(value: object, options: int) -> str:
    """The letter of the right option, from a letter or an index that counts from 0. Raises Unusable."""
    text = str(value).strip().upper().rstrip(".)")
    if text in LETTERS[:options] and len(text) == 1:
        return text
    if text.isdigit() and int(text) < options:
        return LETTERS[int(text)]
    raise Unusable("label_unclear", str(value)[:80])
