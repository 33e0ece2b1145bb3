"""Questions with a checkable answer: GSM8K (#### marks), worked problems with an expected answer."""

from __future__ import annotations

import re

from data.formats.base import Columns, Given, Match, Record, chat, mapping, needed, text_cell
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "maths"
ABOUT = "questions with a checkable answer: GSM8K (#### before the answer), problem and expected answer"
GIVES = ("prompt", "messages")
_CALC = re.compile(r"<<[^<>]*>>")


def matches(columns: Columns, given: Given) -> Match | None:
    """Answers with `#### `, or a problem with an expected answer (and its solution)."""
    question = columns.text("question", ("question", "problem", "prompt"), given)
    if question is None:
        return None
    answer = columns.text("answer", ("answer",), given)
    if (
        answer is not None
        and answer.texts
        and sum("#### " in text for text in answer.texts) * 2 > len(answer.texts)
    ):
        return Match(
            NAME, 0.98, mapping(question=question, answer=answer), f"column {answer.name} ends with ####"
        )
    expected = columns.find("expected_answer", ("expected_answer", "final_answer", "ground_truth"), given)
    solution = columns.text("solution", ("generated_solution", "solution"), given)
    if expected is None:
        return None
    found = mapping(question=question, expected_answer=expected, solution=solution)
    gives = GIVES if solution is not None else ("prompt",)
    return Match(NAME, 0.95, found, f"columns {question.name} and {expected.name}", gives=gives)


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """For prompts the final answer alone; for conversations the worked answer without calculator marks."""
    columns = match.columns
    question = needed(record, columns["question"], "empty_prompt")
    if shape == "messages":
        worked = text_cell(record, columns.get("answer") or columns.get("solution"))
        return [chat(question, _CALC.sub("", worked))]
    answer = (
        final_answer(text_cell(record, columns["answer"]))
        if "answer" in columns
        else needed(record, columns["expected_answer"], "no_final_answer")
    )
    return [{"prompt": [{"role": "user", "content": question}], "answer": answer}]


def final_answer(text: str) -> str:
    """What follows the last ####, without commas, dollar signs and blanks. Raises Unusable('no_final_answer')."""
    _, mark, answer = text.rpartition("####")
    bare = answer.strip().replace(",", "").replace("$", "").replace(" ", "")
    if not mark or not bare:
        raise Unusable("no_final_answer", text[-80:])
    return bare
