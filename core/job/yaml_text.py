"""The harmless part of YAML to plain values: no aliases, anchors, merge keys, tags or repeated keys.

Numbers and constants follow YAML 1.2's core schema (`1e-4` is a number, `no` and `1:30` are text, `010` is ten).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from core.job.reading import (
    MAX_DEPTH,
    MAX_NODES,
    FieldPath,
    Position,
    Reading,
    broken,
    dotted,
    plain_value,
    too_deep,
    too_many,
)
from data.errors import FactoryError, Finding

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


def read_yaml(text: str, origin: str) -> Reading:
    """The reading of a YAML text. Raises FactoryError where it cannot go on."""
    return _YamlReader(text, origin).read()


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
            return broken(self.origin, "it holds a control character; save it as plain UTF-8 text", at)
        assert isinstance(error, yaml.MarkedYAMLError)
        mark = error.problem_mark or error.context_mark
        at = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        problem = str(error.problem)
        if "maximum nesting depth" in problem:
            return too_deep(self.origin)
        if problem == "control characters are not allowed":
            problem = "it holds a control character; save it as plain UTF-8 text"
        if "\t" in self.text and "cannot start any token" in problem:
            return broken(self.origin, "a tab where YAML wants spaces", at)
        words = next((words for start, words in _SYNTAX_HINTS if start in problem), problem)
        return broken(self.origin, words, at)

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
            raise too_many(self.origin)
        if len(path) > MAX_DEPTH:
            raise too_deep(self.origin)
        self.out.positions.setdefault(path, _place(event))
        if isinstance(event, yaml.AliasEvent):
            self._tell(
                "yaml_alias", path, f"must not be an alias (*{event.anchor}); write the value out", event
            )
            return None
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor:
            self._tell(
                "yaml_anchor", path, f"must not have an anchor (&{event.anchor}); write the value out", event
            )
        tag = event.tag if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) else None
        if tag and tag != "!":
            self._tell(
                "yaml_tag", path, f"must not have a tag ({_short(tag)}); a job holds plain values only", event
            )
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
                self._tell("yaml_tag", path, "has a key with an anchor or a tag; write the plain name", event)
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


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
