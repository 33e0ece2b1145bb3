"""Rows out of JSON: an array, an object of columns, a wrapped list, JSON Lines, or objects one after another."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import IO, Any

import orjson

from data.limits import MAX_COLUMNS, MAX_LINE, MAX_WHOLE_JSON, depth_within
from data.opening import lines_of
from data.rows import Unusable

Item = tuple[int, dict[str, Any] | Unusable]
"""(line or row number, record) as every reader yields it; an Unusable stands for a record that could not be read."""

WRAPPERS = ("data", "rows", "train", "examples", "items", "records", "dataset", "samples", "instances")
ROW_WORDS = (
    "prompt",
    "instruction",
    "question",
    "query",
    "text",
    "messages",
    "conversations",
    "conversation",
    "chosen",
)
"""An object with one of these is a row, whatever lists it holds besides."""
_MESSAGE_KEYS = (
    {"role", "content"},
    {"from", "value"},
    {"role", "text"},
    {"speaker", "text"},
    {"speaker", "utterance"},
)


def read_lines(stream: IO[bytes], notes: dict[str, list[int]]) -> Iterator[Item]:
    """Rows of JSON Lines in UTF-8. A line with several objects gives them all and is noted."""
    loads = orjson.loads
    for number, line in lines_of(stream):
        if line is None:
            yield number, Unusable("line_too_long")
            continue
        try:
            record = loads(line)
        except orjson.JSONDecodeError:
            if line.strip(b" \t\r\n\xef\xbb\xbf"):
                yield from _mend_line(number, line, notes)
            continue
        if type(record) is dict and line.count(b"{") + line.count(b"[") <= 64:
            yield number, record
        else:
            yield number, as_record(record)


def _mend_line(number: int, line: bytes, notes: dict[str, list[int]]) -> Iterator[Item]:
    text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
    if "\ufffd" in text:
        notes.setdefault("bad_bytes", []).append(number)
    if text.count("{") + text.count("[") > 2 * MAX_LINE // 16:
        yield number, Unusable("too_deep", text[:80])
        return
    values, rest = _values(text)
    if rest is not None:
        yield number, rest
        return
    if len(values) > 1:
        notes.setdefault("several_on_a_line", []).append(number)
    for value in values:
        yield number, as_record(value)


def _values(text: str) -> tuple[list[Any], Unusable | None]:
    """All JSON values in `text`, one after another; an Unusable instead of them when some part is not JSON."""
    decoder = json.JSONDecoder()
    values: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            return [], Unusable("broken_json", f"{error.msg} at column {error.pos + 1}: {text[:160]}")
        except RecursionError:
            return [], Unusable("too_deep", text[:80])
        values.append(value)
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return values, None


def as_record(value: Any) -> dict[str, Any] | Unusable:
    """A JSON value as a record: objects as they are, texts as {text}, lists of turns as {messages}."""
    if not depth_within(value):
        return Unusable("too_deep")
    if isinstance(value, dict):
        return value if len(value) <= MAX_COLUMNS else Unusable("not_an_object", f"{len(value)} columns")
    if isinstance(value, str):
        return {"text": value}
    if _is_turns(value):
        return {"messages": value}
    return Unusable("not_an_object", json.dumps(value, ensure_ascii=False, default=str)[:160])


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(turn, dict) and any(keys <= turn.keys() for keys in _MESSAGE_KEYS) for turn in value[:4]
    )  # fmt: skip


def read_document(stream: io.BufferedReader, size: int, notes: dict[str, list[int]]) -> Iterator[Item]:
    """Rows of one JSON document in UTF-8: an array, an object of columns, a wrapped list, or several values.

    Small documents are parsed whole; large ones, and those with an error in them, element by element, so that
    the rows before the error are kept and the error is shown with its line.
    """
    if size <= MAX_WHOLE_JSON:
        whole = stream.read(MAX_WHOLE_JSON + 1)
        if len(whole) <= MAX_WHOLE_JSON:
            try:
                yield from expand(orjson.loads(whole.removeprefix(b"\xef\xbb\xbf")), notes)
                return
            except orjson.JSONDecodeError:
                pass
        stream = io.BufferedReader(_Joined(whole, stream), 2**20)
    yield from _stream_values(stream, notes)


class _Joined(io.RawIOBase):
    """Bytes already read, then the rest of a stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def expand(value: Any, notes: dict[str, list[int]]) -> Iterator[Item]:
    """The rows inside one parsed JSON value; row numbers count from 1."""
    if isinstance(value, list) and not _is_turns(value):
        for number, element in enumerate(value, 1):
            if type(element) is dict and not any(type(v) in (dict, list) for v in element.values()):
                yield number, element
            else:
                yield number, as_record(element)
    elif isinstance(value, dict):
        yield from _expand_object(value, notes)
    else:
        yield 1, as_record(value)


def _expand_object(value: dict[str, Any], notes: dict[str, list[int]]) -> Iterator[Item]:
    columns = _columns(value)
    if columns is not None:
        notes.setdefault("columns_transposed", []).append(1)
        for number, cells in enumerate(zip(*columns.values(), strict=True), 1):
            yield number, as_record(dict(zip(columns, cells, strict=True)))
        return
    field = _wrapped_in(value)
    if field is not None:
        notes.setdefault(f"wrapped_in:{field}", []).append(1)
        yield from expand(value[field], notes)
        return
    yield 1, as_record(value)


def _wrapped_in(value: dict[str, Any]) -> str | None:
    """The field that holds the rows of a wrapped list, or None when the object is itself a row."""
    if any(isinstance(value.get(word), (str, list)) for word in ROW_WORDS):
        return None
    lists = [
        k
        for k, v in value.items()
        if isinstance(v, list) and v and isinstance(v[0], dict) and not _is_turns(v)
    ]
    named = [k for k in lists if k in WRAPPERS] or lists
    return named[0] if len(named) == 1 else None


def _columns(value: dict[str, Any]) -> dict[str, list[Any]] | None:
    """An object of columns as lists of equal length: {"a": {"0": ..}} (pandas) or {"a": [..], "b": [..]}; else None."""
    if not value:
        return None
    parts = list(value.values())
    if all(isinstance(part, dict) and part for part in parts):
        keys = list(parts[0])
        if all(key.isdigit() for key in keys) and all(list(part) == keys for part in parts):
            return {name: list(part.values()) for name, part in value.items()}
    if len(parts) > 1 and all(isinstance(part, list) and part for part in parts):
        same = len({len(part) for part in parts}) == 1
        if same and not any(isinstance(part[0], (dict, list)) for part in parts):
            return {name: list(part) for name, part in value.items()}
    return None


def _stream_values(stream: IO[bytes], notes: dict[str, list[int]]) -> Iterator[Item]:
    """Top-level values, or the elements of a top-level array, parsed one at a time from a sliding window."""
    window = _Window(stream)
    try:
        yield from _window_values(window)
    finally:
        window.let_go()


def _window_values(window: _Window) -> Iterator[Item]:
    array = window.take("[")
    number = 0
    while not window.at_end():
        if array and window.take("]"):
            array = False
            continue
        number += 1
        where = window.line
        value = window.value()
        yield (where if not array else number), value if isinstance(value, Unusable) else as_record(value)
        if isinstance(value, Unusable) and not window.skip_to_next_object():
            if window.left:
                yield window.line, Unusable("unread")
            return
    if array:
        yield window.line, Unusable("broken_json", "the file ends inside the array")


class _Window:
    """A piece of a large JSON text and a place in it; reads on when a value is not complete yet."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        self._decoder = json.JSONDecoder()
        self._piece, self._at, self._ended = "", 0, False
        self.line = 1
        self.left = False

    def let_go(self) -> None:
        """Leave the stream to whoever opened it."""
        self._text.detach()

    def _more(self, size: int = 2**20) -> bool:
        piece = self._text.read(size)
        self._ended = not piece
        self._piece = self._piece[self._at :] + piece
        self._at = 0
        return not self._ended

    def _pass(self, end: int) -> None:
        self.line += self._piece.count("\n", self._at, end)
        self._at = end

    def at_end(self) -> bool:
        """Skip blanks and commas; True when nothing is left."""
        while True:
            end = self._at
            while end < len(self._piece) and self._piece[end] in " \t\r\n,":
                end += 1
            self._pass(end)
            if end < len(self._piece):
                return False
            if not self._more():
                return True

    def take(self, mark: str) -> bool:
        """Step over `mark` when it comes next."""
        if self.at_end() or self._piece[self._at] != mark:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """The next value; an Unusable when it is not JSON, too long or too deep."""
        step = 2**20
        while True:
            try:
                value, end = self._decoder.raw_decode(self._piece, self._at)
            except json.JSONDecodeError as error:
                # Only an error at the very end of the window can be a value that is not complete yet.
                short = error.pos > len(self._piece) - 64 or "Unterminated" in error.msg
                if short and not self._ended:
                    if len(self._piece) - self._at > MAX_LINE:
                        return Unusable("line_too_long")
                    if self._more(step):
                        step *= 2
                        continue
                return Unusable("broken_json", f"{error.msg}: {self._piece[self._at : self._at + 160]}")
            except RecursionError:
                return Unusable("too_deep", self._piece[self._at : self._at + 80])
            if end == len(self._piece) and not self._ended and self._more():
                continue
            self._pass(end)
            return value

    def skip_to_next_object(self) -> bool:
        """After a broken value: go on behind the next line end that is followed by an object. `left` tells whether
        there was anything else behind the broken value."""
        self.left = False
        line_ended = False
        while True:
            place = self._at
            if not line_ended:
                place = self._piece.find("\n", self._at) + 1
                line_ended = place > 0
            found = self._piece.find("{", place) if line_ended else -1
            if found >= 0:
                self._pass(found)
                return True
            rest = self._piece[self._at :] if not line_ended else self._piece[place:]
            self.left = self.left or "}," in rest
            self._pass(len(self._piece))
            if not self._more():
                return False
