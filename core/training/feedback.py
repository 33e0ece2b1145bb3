"""Rows with an answer and a good or bad label, as trl's KTO trainer takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset


def split_answers(rows: Dataset, *, batch_size: int, seed: int) -> Dataset:
    """`input_ids`, `labels`, `label` as prompt_ids, completion_ids, KL_completion_ids, label; shuffled by `seed`.

    KL_completion_ids are the answers of the neighbours: within each batch they move on by one, as the KL estimate of
    KTO (arXiv 2402.01306, section 4.1) wants mismatched pairs. A lone last row joins the batch before it, for it
    would be its own mismatch. The order is fixed here because the trainer of trl 1.12 reads rows in sequence.
    """
    table = rows.shuffle(seed=seed).flatten_indices(keep_in_memory=True).data.table.combine_chunks()
    ids, labels = (_flat(table[name]) for name in ("input_ids", "labels"))
    values, offsets = ids
    place = np.arange(len(values)) - np.repeat(offsets[:-1], np.diff(offsets))
    learnt = np.where(labels[0] != -100, place, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(learnt, offsets[:-1])
    asked = place < np.repeat(first, np.diff(offsets))
    answers = _lists(values[~asked], np.diff(offsets) - first)
    columns = {
        "prompt_ids": _lists(values[asked], first),
        "completion_ids": answers,
        "KL_completion_ids": answers.take(pa.array(_neighbours(len(table), batch_size))),
        "label": table["label"].combine_chunks(),
    }
    return Dataset(pa.table(columns))


def _neighbours(count: int, batch: int) -> np.ndarray[Any, Any]:
    """For each row the row whose answer it borrows: the one before it in its batch, the last one for the first."""
    starts = list(range(0, count, batch))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    bounds = [*starts, count]
    return np.concatenate([np.roll(np.arange(a, b), 1) for a, b in zip(bounds, bounds[1:], strict=False)])


def _flat(column: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    start = lists.offsets[0].as_py()
    return lists.flatten().to_numpy(), lists.offsets.to_numpy() - start


def _lists(values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> Any:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.int32)))
