"""Tasks with several instances each (Self-Instruct seed tasks)."""

from __future__ import annotations

from data.formats.base import Columns, Given, Match, Record, chat, mapping, text_cell
from data.rows import Row, Unusable
from data.settings import Choices

NAME = "seed_tasks"
ABOUT = "an instruction with several instances of input and output (Self-Instruct seed tasks)"
GIVES = ("messages",)


def matches(columns: Columns, given: Given) -> Match | None:
    """The columns instruction and instances, a list of {input, output}."""
    instruction = columns.text("instruction", ("instruction",), given)
    instances = columns.find("instances", ("instances",), given)
    if instruction is None or instances is None or "objects" not in instances.kinds:
        return None
    return Match(
        NAME, 0.97, mapping(instruction=instruction, instances=instances), "columns instruction and instances"
    )


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """One row per instance."""
    instruction = text_cell(record, match.columns["instruction"])
    instances = record.get(match.columns["instances"])
    if not isinstance(instances, list) or not all(isinstance(one, dict) for one in instances):
        raise Unusable("wrong_type", repr(instances)[:160])
    rows = []
    for one in instances:
        more = str(one.get("input") or "")
        asked = f"{instruction}{choices.separator}{more}" if more.strip() else instruction
        rows.append(chat(asked, str(one.get("output") or "")))
    return rows
