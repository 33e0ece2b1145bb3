"""A chosen and a rejected answer: texts, turns, whole conversations with a shared beginning, single turns."""

from __future__ import annotations

from typing import Any

from data.formats.base import Column, Columns, Given, Match, Record, mapping, text_cell
from data.formats.marked import is_hh, split_hh
from data.formats.pairs import number
from data.formats.turns import looks_like_turn, looks_like_turns, read_turn, read_turns
from data.rows import Row, Turn, Unusable
from data.settings import Choices

NAME = "preference"
ABOUT = "a chosen and a rejected answer, as texts, turns or whole conversations (also HH-RLHF, UltraFeedback)"
GIVES = ("preference",)
CHOSEN = ("chosen", "response_chosen", "chosen_response", "response_j", "preferred", "preferred_response")
REJECTED = (
    "rejected",
    "response_rejected",
    "rejected_response",
    "response_k",
    "dispreferred",
    "rejected_answer",
)
PROMPT = ("prompt", "question", "instruction", "query", "input", "problem")
TURNS = ("conversations", "conversation", "messages", "history")


def matches(columns: Columns, given: Given) -> Match | None:
    """Two answer columns by name; the prompt is a column, a list of turns, or what both answers begin with."""
    rejected = columns.find("rejected", REJECTED, given)
    if rejected is None:
        return None
    chosen = columns.find("chosen", (*CHOSEN, "response", "answer", "output"), given)
    if chosen is None or chosen is rejected or not (_answers(chosen) and _answers(rejected)):
        return None
    whole = chosen.is_turns or any(map(is_hh, chosen.texts))
    prompt = columns.find("prompt", PROMPT, given)
    turns = next(
        (c for name in TURNS if (c := columns.find(name, (name,), {})) is not None and c.is_turns), None
    )
    if prompt is None and turns is None and not whole:
        return None
    conversations = turns if prompt is None and not whole else None
    found = mapping(
        prompt=prompt,
        messages=conversations,
        input=columns.text("input", ("input",), given)
        if prompt is not None and prompt.name != "input"
        else None,
        system=columns.text("system", ("system", "system_prompt"), given),
        chosen=chosen,
        rejected=rejected,
        score_chosen=columns.find("score_chosen", ("score_chosen", "chosen_score"), given),
        score_rejected=columns.find("score_rejected", ("score_rejected", "rejected_score"), given),
    )
    return Match(NAME, 0.97, found, f"columns {chosen.name} and {rejected.name}")


def _answers(column: Column) -> bool:
    return column.is_text or column.is_turns or any(map(looks_like_turn, column.values))


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One preference row: texts stay texts; a shared beginning becomes the prompt."""
    chosen, rejected = (record.get(match.columns[side]) for side in ("chosen", "rejected"))
    if isinstance(chosen, str) and isinstance(rejected, str) and is_hh(chosen):
        row = _shared(split_hh(chosen), split_hh(rejected))
    elif isinstance(chosen, str) or isinstance(rejected, str):
        row = {
            "prompt": _prompt(record, match, choices),
            "chosen": text_cell(record, match.columns["chosen"]),
            "rejected": text_cell(record, match.columns["rejected"]),
        }
    else:
        row = _of_turns(record, match, _turns(chosen), _turns(rejected), choices)
    scores = [match.columns.get(name) for name in ("score_chosen", "score_rejected")]
    if all(name is not None and record.get(name) is not None for name in scores):
        row["margin"] = number(record[scores[0] or ""]) - number(record[scores[1] or ""])
    return [row]


def _prompt(record: Record, match: Match, choices: Choices) -> Any:
    if "messages" in match.columns:
        return read_turns(record.get(match.columns["messages"]))
    if "prompt" not in match.columns:
        raise Unusable("empty_prompt")
    value = record.get(match.columns["prompt"])
    if looks_like_turns(value):
        return read_turns(value)
    text = text_cell(record, match.columns["prompt"])
    more = text_cell(record, match.columns.get("input"))
    if more.strip():
        text = f"{text}{choices.separator}{more}"
    if is_hh(text):
        return [turn for turn in split_hh(text) if turn["content"]]
    system = text_cell(record, match.columns.get("system"))
    if system.strip():
        return [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return text


def _turns(value: Any) -> list[Turn]:
    if looks_like_turn(value):
        return [read_turn(value)]
    if value is None:
        raise Unusable("empty_answer")
    return read_turns(value)


def _of_turns(
    record: Record, match: Match, chosen: list[Turn], rejected: list[Turn], choices: Choices
) -> Row:
    row = _shared(chosen, rejected)
    if row["prompt"]:
        return row
    prompt = _prompt(record, match, choices)
    return {**row, "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}


def _shared(chosen: list[Turn], rejected: list[Turn]) -> Row:
    """The common beginning as prompt; each side keeps at least its last turn."""
    most = min(len(chosen), len(rejected)) - 1
    same = 0
    while same < most and chosen[same] == rejected[same]:
        same += 1
    return {"prompt": chosen[:same], "chosen": chosen[same:], "rejected": rejected[same:]}
