"""What every format file speaks: columns seen in a sample, a Match, and helpers to find and read cells.

A format module holds NAME, ABOUT (one line for people), GIVES (row shapes it can make, best first),
`matches(columns, given)` and `to_rows(record, shape, match, choices)`. All pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from data.errors import Finding
from data.formats.turns import looks_like_turns
from data.rows import Row, Unusable
from data.settings import Choices

Given = Mapping[str, str]
"""Columns the user named: our word -> the file's column. Words not named are detected."""
Record = Mapping[str, Any]


@dataclass
class Column:
    """What a sample shows of one column: the kinds of its values and some of them."""

    name: str
    kinds: Counter[str] = field(default_factory=Counter)
    values: list[Any] = field(default_factory=list)

    @property
    def is_text(self) -> bool:
        """Mostly texts; numbers and gaps do not count against it."""
        return self._mostly(self.kinds["text"]) and self.kinds["text"] > 0

    @property
    def is_turns(self) -> bool:
        """Mostly lists of turns."""
        return self._mostly(self.kinds["turns"]) and self.kinds["turns"] > 0

    def _mostly(self, count: int) -> bool:
        told = sum(self.kinds.values()) - self.kinds["null"] - self.kinds["empty"] - self.kinds["number"]
        return 2 * count >= told

    @property
    def texts(self) -> list[str]:
        """The texts among the sampled values."""
        return [value for value in self.values if isinstance(value, str)]


WORDS = frozenset(
    "answer answer_a answer_b answers chosen choices completion context expected_answer history id input instances "
    "instruction label messages output paragraphs parent_id prompt question rank rejected response role score score_a "
    "score_b score_chosen score_rejected solution system text tools tree winner".split()
)
"""Our words for columns: what formats look for, and `data.columns` may map."""


class Columns:
    """The columns of a sample, found by name without regard to case, spaces and underscores."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.all: dict[str, Column] = {}
        self.count = 0
        for record in records:
            self.count += 1
            for name, value in record.items():
                column = self.all.setdefault(name, Column(name))
                column.kinds[kind_of(value)] += 1
                if len(column.values) < 64 and value is not None:
                    column.values.append(value)
        self._folded = {fold(name): column for name, column in reversed(self.all.items())}

    def find(self, word: str, aliases: Sequence[str], given: Given) -> Column | None:
        """The column for `word`: the one the user named, else the first alias there is."""
        if word in given:
            return self.all.get(given[word])
        return next((self._folded[fold(a)] for a in aliases if fold(a) in self._folded), None)

    def text(self, word: str, aliases: Sequence[str], given: Given) -> Column | None:
        """Like `find`, but only a column of texts."""
        column = self.find(word, aliases, given)
        return column if column is not None and column.is_text else None


def fold(name: str) -> str:
    """A column's name for comparing: lower case, without blanks, underscores and dashes."""
    return name.strip().lower().replace("_", "").replace("-", "").replace(" ", "")


def kind_of(value: Any) -> str:
    """null, flag, number, text, turns, turn, texts, objects, object or list."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "turns" if looks_like_turns(value) else "object"
    if not value:
        return "empty"
    if looks_like_turns(value):
        return "turns"
    first = value[0]
    return "texts" if isinstance(first, str) else "objects" if isinstance(first, dict) else "list"


@dataclass(frozen=True)
class Match:
    """A format that fits: how sure (0..1), our words -> the file's columns, why, and what the user may choose."""

    format: str
    sure: float
    columns: Mapping[str, str]
    why: str
    asks: tuple[Finding, ...] = ()
    gives: tuple[str, ...] = ()
    """Row shapes these columns can give, where they are other ones than the format's GIVES."""
    clear: bool = True
    """False when a question must be answered before the rows can be used; weaker formats are then looked at too."""


class Format(Protocol):
    """A module in data/formats."""

    NAME: str
    ABOUT: str
    GIVES: tuple[str, ...]

    def matches(self, columns: Columns, given: Given) -> Match | None:
        """How this format explains the columns, or None."""

    def to_rows(self, record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
        """The canonical rows of one record. Raises Unusable with the reason when there is none."""


def gathers(module: Any, shape: str) -> bool:
    """True for a format that must see the whole file before it can make rows of `shape` (trees, groups by prompt)."""
    return shape in getattr(module, "GATHERS", ())


def text_cell(record: Record, column: str | None) -> str:
    """The cell as text; numbers as people write them; empty when absent. Raises Unusable for lists and objects."""
    value = record.get(column) if column is not None else None
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    raise Unusable("wrong_type", f"{column}: {value!r}"[:160])


def chat(prompt: str, answer: str, system: str = "") -> Row:
    """A messages row of one question and its answer."""
    turns = [{"role": "system", "content": system}] if system.strip() else []
    return {
        "messages": [*turns, {"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    }


def needed(record: Record, column: str, reason: str = "missing_column") -> str:
    """A text that must not be blank. Raises Unusable."""
    text = text_cell(record, column)
    if not text.strip():
        raise Unusable(reason, column)
    return text


def mapping(**columns: Column | None) -> dict[str, str]:
    """{our word: column name} for the columns that were found."""
    return {word: column.name for word, column in columns.items() if column is not None}


Gathered = Iterator[tuple[int, Record | Unusable]]
"""What a gathering format hands on: whole trees or groups, each with the line of its first record."""
