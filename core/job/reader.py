"""Job text to plain values with positions, within hard limits. Knows YAML and JSON, and no field of a job.

The text may come from anybody, so only the harmless part of YAML is read: no aliases, anchors, merge keys,
tags or repeated keys, and numbers by YAML 1.2's core schema (`1e-4` is a number, `no` and `1:30` are text,
`010` is ten). `read_text` tells everything that is wrong at once, and answers any input in well under 0.1 s.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from data.errors import FactoryError, Finding

MAX_BYTES = 256 * 1024
MAX_NODES = 2_000
MAX_DEPTH = 20
MAX_DIGITS = 100
"""Characters of a number, far below Python's own limit of 4,300 digits."""

FieldPath = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top, such as ("hardware", "devices", 0)."""


@dataclass(frozen=True)
class Position:
    """A place in the text, both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass
class Reading:
    """What a text says: the value, where each part stands, and what is wrong with the text itself."""

    value: Any = None
    positions: dict[FieldPath, Position] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    overridden: set[FieldPath] = field(default_factory=set)
    """Fields set on the command line: their place is there, not in the text."""

    def place(self, path: FieldPath) -> Position | None:
        """Where the text says this field, or else the part of the job that it belongs to."""
        starts = (path[:length] for length in range(len(path), 0, -1))
        return next((self.positions[start] for start in starts if start in self.positions), None)

    def is_overridden(self, path: FieldPath) -> bool:
        """Whether the field, or a part of the job that holds it, was set on the command line."""
        return any(path[:length] in self.overridden for length in range(1, len(path) + 1))


def dotted(path: FieldPath) -> str:
    """A path as people write it: `train.epochs`, `devices[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_text(text: str, origin: str) -> Reading:
    """The plain value of a YAML or JSON text: dicts, lists, str, int, finite float, bool, None.

    A text that starts with `{` and is valid JSON is read as JSON, everything else as YAML. `origin` is the
    name used in sentences, such as a file name. Raises FactoryError where reading cannot go on (too large,
    too deep, broken syntax); what lets reading go on is in `findings`, with field and position.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise FactoryError(_too("job_too_large", origin, f"is larger than {MAX_BYTES // 1024} KiB"))
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        reading = _read_json(text, origin)
        if reading is not None:
            return reading
    return _YamlReader(text, origin).read()


def _too(code: str, origin: str, what: str, **params: Any) -> Finding:
    return Finding(
        code,
        f"{origin} {what}; a job is a short description: keep the rows in a data file.",
        params={"origin": origin, **params},
    )


def _too_deep(origin: str) -> Finding:
    return _too("job_too_deep", origin, f"is nested more than {MAX_DEPTH} levels deep")


def _syntax(origin: str, what: str, at: Position) -> FactoryError:
    return FactoryError(
        Finding(
            "job_syntax",
            f"{origin} cannot be read: {what} ({at}).",
            params={"origin": origin, "line": at.line, "column": at.column},
        )
    )


_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASES = {"0o": 8, "0x": 16}
_BASED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# libyaml where PyYAML was built with it (every wheel is): a 256 KiB scalar takes 2 ms instead of 200.
_PARSER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

_SYNTAX_HINTS = (
    ("cannot start any token", "a character that YAML keeps for itself: put the text in quotes"),
    (
        "mapping values are not allowed",
        "a second ': ' on one line: put the text in quotes or start a new line",
    ),
    ("did not find expected key", "the indentation does not fit the lines around it"),
    ("did not find expected '-' indicator", "the indentation does not fit the list around it"),
    ("could not find expected ':'", "a key without ': ' after it"),
    ("did not find expected node content", "a value is missing"),
    ("found unexpected end of stream", "a quote that is never closed"),
    ("did not find expected ',' or", "a bracket or brace that is never closed, or a missing comma"),
)


class _YamlReader:
    """One pass over the parser's events, so that limits hold before anything large is built."""

    def __init__(self, text: str, origin: str) -> None:
        self.text = text
        self.origin = origin
        self.nodes = 0
        self.out = Reading()

    def read(self) -> Reading:
        try:
            events = self._events()
            first = next(events)
            if isinstance(first, yaml.StreamEndEvent):
                return self.out
            self.out.value = self._node(first, events, ())
            rest = next(events)
        except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
            raise self._syntax_error(error) from None
        if not isinstance(rest, yaml.StreamEndEvent):
            self._tell("second_document", (), "a second document after ---; one file holds one job", rest)
        return self.out

    def _events(self) -> Iterator[yaml.Event]:
        # Document starts and ends carry nothing we keep; a second document shows as one more content event.
        parser = _PARSER(self.text)
        skipped = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
        while parser.check_event():
            event = parser.get_event()
            if not isinstance(event, skipped):
                yield event

    def _syntax_error(self, error: yaml.YAMLError) -> FactoryError:
        if isinstance(error, yaml.reader.ReaderError):
            before = self.text[: max(error.position, 0)]
            at = Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
            return _syntax(self.origin, "it holds a control character; save it as plain UTF-8 text", at)
        assert isinstance(error, yaml.MarkedYAMLError)
        mark = error.problem_mark or error.context_mark
        at = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        problem = str(error.problem)
        if "maximum nesting depth" in problem:
            return FactoryError(_too_deep(self.origin))
        if problem == "control characters are not allowed":
            problem = "it holds a control character; save it as plain UTF-8 text"
        if "\t" in self.text and "cannot start any token" in problem:
            return _syntax(self.origin, "a tab where YAML wants spaces", at)
        words = next((words for start, words in _SYNTAX_HINTS if start in problem), problem)
        return _syntax(self.origin, words, at)

    def _tell(self, code: str, path: FieldPath, what: str, event: yaml.Event) -> None:
        at = _place(event)
        where = f"{dotted(path)}: " if path else ""
        self.out.findings.append(
            Finding(
                code,
                f"{where}{what} ({self.origin}, {at}).",
                field=dotted(path) or None,
                params={"origin": self.origin, "line": at.line, "column": at.column},
            )
        )

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: FieldPath) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise FactoryError(
                _too("job_too_many_nodes", self.origin, f"holds more than {MAX_NODES:,} keys and values")
            )
        if len(path) > MAX_DEPTH:
            raise FactoryError(_too_deep(self.origin))
        self.out.positions.setdefault(path, _place(event))
        if isinstance(event, yaml.AliasEvent):
            self._tell("yaml_alias", path, f"the alias *{event.anchor}; write the value out", event)
            return None
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor:
            self._tell("yaml_anchor", path, f"the anchor &{event.anchor}; write the value out", event)
        tag = event.tag if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) else None
        if tag and tag != "!":
            self._tell("yaml_tag", path, f"the tag {_short(tag)}; a job holds plain values only", event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event, path)

    def _sequence(self, events: Iterator[yaml.Event], path: FieldPath) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: FieldPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, path)
            value = self._node(next(events), events, (*path, key))
            if key == "<<":
                self._tell("yaml_merge", path, "the merge key <<; write the values out", event)
            elif key in found:
                self._tell("duplicate_key", (*path, key), "is written twice; keep one", event)
            else:
                found[key] = value
        return found

    def _key(self, event: yaml.Event, events: Iterator[yaml.Event], path: FieldPath) -> str:
        if isinstance(event, yaml.ScalarEvent):
            self.nodes += 1
            if event.anchor or event.tag:
                self._tell("yaml_tag", path, "a key with an anchor or a tag; write the plain name", event)
            self.out.positions.setdefault((*path, event.value), _place(event))
            return str(event.value)
        self._tell("bad_key", path, "a key that is not a name", event)
        self._node(event, events, (*path, "?"))
        return "?"

    def _scalar(self, event: yaml.ScalarEvent, path: FieldPath) -> Any:
        # A quoted or block scalar is text whatever it looks like; `!` before a plain one says the same.
        if event.style or event.tag == "!":
            return event.value
        value, problem = plain_value(event.value)
        if problem:
            self._tell("bad_number", path, problem, event)
        return value


def _place(event: yaml.Event) -> Position:
    mark = event.start_mark
    assert mark is not None  # both parsers mark every event
    return Position(mark.line + 1, mark.column + 1)


def plain_value(text: str) -> tuple[Any, str | None]:
    """The value of an unquoted YAML scalar by the 1.2 core schema, and what is wrong with it, if anything."""
    if text in _CONSTANTS:
        return _CONSTANTS[text], None
    if _NOT_FINITE.fullmatch(text):
        return None, f"{text} is not a number to compute with; write a finite number"
    number = any(form.fullmatch(text) for form in (_INT, _BASED_INT, _FLOAT))
    return _number(text) if number else (text, None)


def _number(text: str) -> tuple[Any, str | None]:
    if len(text) > MAX_DIGITS:
        return None, f"a number of {len(text):,} characters; write at most {MAX_DIGITS}"
    if _BASED_INT.fullmatch(text):
        return int(text[2:], _INT_BASES[text[:2]]), None
    number = int(text) if _INT.fullmatch(text) else float(text)
    if not math.isfinite(number):
        return None, f"{text} is too large for a number"
    if number == 0 and text.startswith("-"):
        return None, f"{text} is negative zero; write 0"
    return number, None


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# A string that never ends matches too, up to the end of the text; or each of its quotes would be tried anew.
_JSON_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _json_depth(text: str) -> int:
    depth = deepest = 0
    for token in _JSON_STRING_OR_BRACKET.finditer(text):
        first = token[0][0]
        depth += (first in "[{") - (first in "]}")
        deepest = max(deepest, depth)
    return deepest


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written, repeated keys and all, until its path is known."""


def _read_json(text: str, origin: str) -> Reading | None:
    """The reading of a JSON text; None when it is not JSON (it may still be YAML in braces)."""
    if _json_depth(text) > MAX_DEPTH:
        # The depth is checked first: Python's own parser would recurse as deep as the text asks.
        raise FactoryError(_too_deep(origin))
    try:
        # Numbers stay text here and are read by the same rules as YAML's, with their field at hand.
        raw = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_Digits, parse_float=_Digits, parse_constant=_Digits
        )
    except json.JSONDecodeError as error:
        if origin.lower().endswith(".json"):
            raise _syntax(origin, _json_words(error), Position(error.lineno, error.colno)) from None
        return None
    reader = _JsonReader(origin)
    reader.out.value = reader.plain(raw, ())
    return reader.out


def _json_words(error: json.JSONDecodeError) -> str:
    return error.msg[0].lower() + error.msg[1:]


class _Digits(str):
    """A JSON number as it was written."""


class _JsonReader:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.nodes = 0
        self.out = Reading()

    def plain(self, raw: Any, path: FieldPath) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise FactoryError(
                _too("job_too_many_nodes", self.origin, f"holds more than {MAX_NODES:,} keys and values")
            )
        if isinstance(raw, _Pairs):
            return self._object(raw, path)
        if isinstance(raw, list):
            return [self.plain(item, (*path, index)) for index, item in enumerate(raw)]
        if isinstance(raw, _Digits):
            return self._number(raw, path)
        return raw

    def _object(self, pairs: Sequence[tuple[str, Any]], path: FieldPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, raw in pairs:
            self.nodes += 1
            value = self.plain(raw, (*path, key))
            if key in found:
                self._tell("duplicate_key", (*path, key), "is written twice; keep one")
            else:
                found[key] = value
        return found

    def _number(self, digits: str, path: FieldPath) -> Any:
        if digits in ("NaN", "Infinity", "-Infinity"):
            self._tell("bad_number", path, f"{digits} is not a number to compute with; write a finite number")
            return None
        value, problem = _number(digits)
        if problem:
            self._tell("bad_number", path, problem)
        return value

    def _tell(self, code: str, path: FieldPath, what: str) -> None:
        self.out.findings.append(
            Finding(
                code,
                f"{dotted(path)}: {what} ({self.origin}).",
                field=dotted(path) or None,
                params={"origin": self.origin},
            )
        )
