"""Examples as Arrow streams, the form that `datasets.Dataset.from_file` maps into memory. Memory stays flat: the ids
are read from a plain file group by group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
IGNORED = -100
"""Label of a token that is not learnt, as torch's cross entropy has it."""
GROUP = 1024
"""Examples per record batch."""


@dataclass(frozen=True)
class Spans:
    """Where examples lie among the ids: start and length of each, in tokens."""

    starts: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.starts)

    def pick(self, rows: Any) -> Spans:
        """Some of them, by slice or by row numbers."""
        return Spans(self.starts[rows], self.lengths[rows])

    def split(self, room: int) -> Spans:
        """Pieces of at most `room` tokens, nothing lost; the last two of a row share when the last would be a single
        token, which nothing predicts."""
        if not len(self) or int(self.lengths.max()) <= room:
            return self
        starts: list[int] = []
        lengths: list[int] = []
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            at, end = start, start + length
            while at < end:
                size = min(room, end - at)
                size -= end - at - size == 1
                starts.append(at)
                lengths.append(size)
                at += size
        return Spans(np.asarray(starts), np.asarray(lengths))


class Numbers:
    """A flat file of numbers, read by spans and not mapped: mapped pages would count as this process's memory."""

    def __init__(self, path: Path, kind: Any) -> None:
        self._kind = np.dtype(kind)
        self._descriptor = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def read(self, spans: Spans) -> Array:
        """The numbers of the spans one after another; one read where they lie so already."""
        if not len(spans):
            return np.empty(0, self._kind)
        ends = spans.starts + spans.lengths
        if np.array_equal(ends[:-1], spans.starts[1:]):
            return self._slice(int(spans.starts[0]), int(ends[-1] - spans.starts[0]))
        places = zip(spans.starts.tolist(), spans.lengths.tolist(), strict=True)
        return np.concatenate([self._slice(start, length) for start, length in places])

    def _slice(self, start: int, length: int) -> Array:
        size = self._kind.itemsize
        return np.frombuffer(os.pread(self._descriptor, length * size, start * size), self._kind)


@dataclass(frozen=True)
class Tokens:
    """All ids and which of them are learnt."""

    ids: Numbers
    learnt: Numbers

    def labels(self, spans: Spans, ids: Array) -> Array:
        """The ids that are learnt, IGNORED for the others."""
        return np.where(self.learnt.read(spans) != 0, ids, IGNORED)


@contextmanager
def open_tokens(ids: Path, learnt: Path) -> Iterator[Tokens]:
    """The flat files of a spool, open for reading."""
    made = Tokens(Numbers(ids, np.int32), Numbers(learnt, np.uint8))
    try:
        yield made
    finally:
        made.ids.close()
        made.learnt.close()


def write_plain(path: Path, tokens: Tokens, spans: Spans, labelled: bool, cells: list[Any] | None) -> int:
    """input_ids, labels (unless these are prompts) and the rows' further cells; returns the number of examples."""
    import pyarrow

    ids = pyarrow.list_(pyarrow.int32())
    extra = _extra_columns(cells)
    columns = [
        ("input_ids", ids),
        *([("labels", ids)] if labelled else []),
        *((name, v.type) for name, v in extra),
    ]
    with _writer(path, columns) as write:
        for at in range(0, len(spans), GROUP):
            part = spans.pick(slice(at, at + GROUP))
            values = tokens.ids.read(part)
            arrays = [_lists(values, part.lengths)]
            if labelled:
                arrays.append(_lists(tokens.labels(part, values), part.lengths))
            write(arrays + [column[at : at + GROUP] for _, column in extra])
    return len(spans)


def write_packed(path: Path, tokens: Tokens, spans: Spans, packs: Sequence[Sequence[int]]) -> int:
    """input_ids, labels and seq_lengths, one example per pack; returns their number."""
    import pyarrow

    ids = pyarrow.list_(pyarrow.int32())
    with _writer(path, [("input_ids", ids), ("labels", ids), ("seq_lengths", ids)]) as write:
        for at in range(0, len(packs), 64):
            part = packs[at : at + 64]
            rows = spans.pick(np.fromiter((row for one in part for row in one), np.int64))
            counts = np.asarray([len(one) for one in part])
            lengths = np.add.reduceat(rows.lengths, np.cumsum(counts) - counts)
            values = tokens.ids.read(rows)
            write(
                [
                    _lists(values, lengths),
                    _lists(tokens.labels(rows, values), lengths),
                    _lists(rows.lengths, counts),
                ]
            )
    return len(packs)


def write_pairs(path: Path, tokens: Tokens, sides: tuple[Spans, Spans], cells: list[Any] | None) -> int:
    """prompt_ids, chosen_ids and rejected_ids (answers without the prompt), as preference trainers take them."""
    import pyarrow

    ids = pyarrow.list_(pyarrow.int32())
    extra = _extra_columns(cells)
    names = [("prompt_ids", ids), ("chosen_ids", ids), ("rejected_ids", ids)]
    count = len(sides[0])
    with _writer(path, [*names, *((name, values.type) for name, values in extra)]) as write:
        for at in range(0, count, GROUP):
            chosen, rejected = (_prompt_and_answer(tokens, one.pick(slice(at, at + GROUP))) for one in sides)
            arrays = [
                _lists(np.concatenate(part), _sizes(part)) for part in (chosen[0], chosen[1], rejected[1])
            ]
            write(arrays + [column[at : at + GROUP] for _, column in extra])
    return count


def _prompt_and_answer(tokens: Tokens, spans: Spans) -> tuple[list[Array], list[Array]]:
    """Per row the ids before the first learnt one, and those from there on."""
    prompts, answers = [], []
    for row in range(len(spans)):
        one = spans.pick(slice(row, row + 1))
        ids = tokens.ids.read(one)
        begins = int(np.argmax(tokens.learnt.read(one)))
        prompts.append(ids[:begins])
        answers.append(ids[begins:])
    return prompts, answers


def _sizes(parts: Sequence[Array]) -> Array:
    return np.asarray([len(one) for one in parts])


@contextmanager
def _writer(path: Path, columns: Sequence[tuple[str, Any]]) -> Iterator[Any]:
    """A function that writes one record batch, given its arrays in the order of the columns."""
    import pyarrow

    schema = pyarrow.schema([pyarrow.field(name, kind) for name, kind in columns])
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
        yield lambda arrays: writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _lists(values: Array, lengths: Array) -> Any:
    """A column of lists of int32 from flat values. From buffers: pyarrow.array would import pandas (0.3 s)."""
    import pyarrow

    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffer = pyarrow.py_buffer(np.ascontiguousarray(values, np.int32))
    flat = pyarrow.Array.from_buffers(pyarrow.int32(), len(values), [None, buffer])
    kind = pyarrow.list_(pyarrow.int32())
    return pyarrow.Array.from_buffers(kind, len(lengths), [None, pyarrow.py_buffer(offsets)], children=[flat])


def _extra_columns(cells: list[Any] | None) -> list[tuple[str, Any]]:
    """Columns besides the ids: a label, a margin, an answer and free columns for rewards."""
    import pyarrow

    if not cells:
        return []
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    return [(name, pyarrow.array([cell.get(name) for cell in cells])) for name in names]
