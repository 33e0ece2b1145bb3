"""Whatever a code can be told of is told in Chinese too. Codes are read from the source: a new one is missed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from core.job.advice import TABLE
from data.report import _NOTES, _TOLD
from data.rows import REASONS
from webui.words import TEXT

ROOT = Path(__file__).resolve().parents[3]
ELSEWHERE = ("core/cli/", "core/job/foreign/")
"""What only a terminal is told: the command line's own refusals, and the import of other trainers' files."""
ARGUMENT = {"simple": 1}
TELLERS = {
    "because",
    "refuse",
    "Finding",
    "find",
    "Verdict",
    "simple",
    "too_much",
    "_tell",
    "_not_here",
    "_refusal",
}
TELLS_A_FIELD = {"_tell", "_not_here"}
TELLS_A_VALUE = {"find", "_not_here"}
_CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
GENERAL = {"field", "value", "message"}

MADE = {
    ("core/chat/settings.py", "problem"): (),  # a finding that is told again
    ("core/job/case.py", "code"): (),
    ("core/job/json_text.py", "code"): (),
    ("core/job/reading.py", "code"): (),
    ("core/job/yaml_text.py", "code"): (),
    ("core/job/words.py", "_code(kind)"): ("missing_field", "out_of_range", "wrong_type", "not_allowed"),
    ("core/job/engine_checks.py", "f'engine_without_{part}'"): (
        "engine_without_stage",
        "engine_without_method",
    ),
    ("core/rewards/file.py", "code"): (),
    ("core/rewards/scoring.py", "code"): (),
    ("core/runs/attempt.py", "one.code"): (),  # findings told again
    ("core/runs/outcome.py", "self.code"): (),
    ("core/stages/ppo.py", "code"): (),
    ("core/training/callbacks.py", "verdict.code"): (),
    ("core/training/ranks.py", "code"): ("out_of_memory", "rank_died"),
    ("core/training/watchdog.py", "code"): (),
    ("data/child.py", "code"): ("data_needs_too_much_memory", "data_too_deep"),
    ("data/errors.py", "code"): (),
    ("data/report.py", "code"): ("data_nothing_to_learn", "data_no_rows_left"),
    ("data/report.py", "stable"): tuple(code for code, _ in _TOLD.values()),
    ("data/report.py", "f'data_{code}'"): tuple(f"data_{code}" for code in _NOTES),
    ("webui/api/refusals.py", "code"): (),
    ("webui/vllm.py", "code"): ("backend_refused",),
}
"""Codes that are made at run time, by the file and the words that make them; () where literals name them elsewhere."""


class Told(NamedTuple):
    """One place that tells a code, and what the sentence may name."""

    code: str
    where: str
    given: frozenset[str] | None
    """None where the parameters are made at run time."""


def chinese() -> dict[str, str]:
    """The Chinese words."""
    found: dict[str, str] = json.loads((TEXT / "zh.json").read_text("utf-8"))
    return found


def trees() -> Iterator[tuple[str, ast.AST]]:
    """The sources that tell the board something, by path."""
    for top in ("core", "data", "webui"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(ELSEWHERE):
                yield name, ast.parse(path.read_text("utf-8"))


@cache
def told() -> tuple[list[Told], list[tuple[str, str]]]:
    """Every place that tells a code, and the places whose code is made at run time."""
    found, made = [], []
    for path, tree in trees():
        for node in ast.walk(tree):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code":
                found += [Told(one, where, None) for one in _literals(node.value) if _CODE.fullmatch(one)]
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            codes = [one.value for one in node.keywords if one.arg == "code"]
            if name in TELLERS and len(node.args) > ARGUMENT.get(name, 0):
                codes.append(node.args[ARGUMENT.get(name, 0)])
            if not codes or (name == "find" and len(node.args) < 5):
                continue
            names = list(_literals(codes[0]))
            if not names and name in ("because", "refuse", "Finding", "Verdict"):
                made.append((path, ast.unparse(codes[0])))
            found += [Told(one, where, _given(name, node)) for one in names if _CODE.fullmatch(one)]
    return found, made


def _literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.IfExp):
        yield from _literals(node.body)
        yield from _literals(node.orelse)


def _given(name: str, node: ast.Call) -> frozenset[str] | None:
    words = {one.arg for one in node.keywords if one.arg}
    given = {"message"}
    if name == "Finding":
        given |= {
            part for part, place in (("field", 3), ("value", 4)) if len(node.args) > place or part in words
        }
        params = next((one.value for one in node.keywords if one.arg == "params"), None)
        params = node.args[5] if params is None and len(node.args) > 5 else params
        if params is not None and not isinstance(params, ast.Dict):
            return None
        keys = params.keys if isinstance(params, ast.Dict) else []
        return frozenset(given | {key.value for key in keys if isinstance(key, ast.Constant)})
    if name in ("because", "refuse"):
        return frozenset(given | (words - {"fix"})) if all(one.arg for one in node.keywords) else None
    if name in TELLS_A_VALUE:
        given |= {"value", "field"}
    if name in TELLS_A_FIELD:
        given |= {"field"}
    return frozenset(given) if name in (*TELLS_A_FIELD, *TELLS_A_VALUE) else None


def codes() -> set[str]:
    """Every code that the board can be told."""
    literal = {one.code for one in told()[0]}
    guard = (ROOT / "webui" / "guard.py").read_text("utf-8") + (ROOT / "webui/api/refusals.py").read_text(
        "utf-8"
    )
    answered = set(re.findall(r'\b4\d\d[,:] "([a-z]+_[a-z_]+)"', guard))
    return literal | answered | {code for made in MADE.values() for code in made} | set(TABLE)


def test_codes_that_are_made_at_run_time_are_named_here():
    assert set(told()[1]) - set(MADE) == set()


def test_every_code_has_a_chinese_sentence():
    assert len(codes()) > 350
    assert sorted(code for code in codes() if f"finding.{code}" not in chinese()) == []


def test_no_chinese_sentence_is_for_a_code_that_is_gone():
    named = {key.removeprefix("finding.") for key in chinese() if key.startswith("finding.")}
    assert sorted(one for one in named if one not in codes() and not one.startswith("missing.")) == []


@pytest.mark.parametrize("place", told()[0], ids=lambda one: f"{one.code}@{one.where}")
def test_a_sentence_names_only_what_its_finding_gives(place):
    wanted = set(re.findall(r"\{(\w+)\}", chinese().get(f"finding.{place.code}", "")))
    if place.given is not None:
        assert wanted <= place.given


def test_sentences_of_codes_made_at_run_time_name_what_every_finding_has():
    made = {code for all_made in MADE.values() for code in all_made} - {one.code for one in told()[0]}
    known = GENERAL | {"allowed", "count", "what", "rank"}
    assert {
        code for code in made if set(re.findall(r"\{(\w+)\}", chinese().get(f"finding.{code}", ""))) - known
    } == set()


def test_every_card_and_every_reason_to_drop_a_row_is_told_in_chinese():
    words = chinese()
    assert [code for code in TABLE if not {f"card.{code}.cause", f"card.{code}.change"} <= set(words)] == []
    assert [reason for reason in REASONS if f"reason.{reason}" not in words] == []
