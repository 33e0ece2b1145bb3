"""Token ids on their way to disk: cut at max_length, judged, held out, packed; data.arrow writes them.

Ids wait in a flat file; per row only its place, digest and line stay in memory (about 40 bytes a row).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.arrow import Array, Spans, open_tokens, write_packed, write_pairs, write_plain
from data.errors import Finding, refuse
from data.pack import pack
from data.report import Tally, drop_findings, limit_of, merged, note_findings, nothing_left

if TYPE_CHECKING:
    from data.prepare import PrepareSettings
    from data.tokens import Encoder

MAX_UNMASKED = 0.1
"""Share of rows without a learnt token above which preparation is refused: something is wrong with all of them."""


class Spool:
    """Collects frames of rendered rows as ids, then writes train.arrow and eval.arrow."""

    def __init__(self, folder: Path, how: PrepareSettings, too_long: str, name: str = "rows") -> None:
        self._folder, self._how, self._too_long = folder, how, too_long
        self._paths = (folder / f"{name}.ids", folder / f"{name}.learnt")
        self._streams = [path.open("wb") for path in self._paths]
        self._lengths: list[Array] = []
        self._full: list[Array] = []
        self._digests: list[Array] = []
        self._taught: list[Array] = []
        self._files: list[Array] = []
        self._undone: list[tuple[int, int, str]] = []
        self._cut_lines: list[tuple[int, int]] = []
        self._cells: list[Any] = []
        self._per_row = 1
        self._kind = "learn"
        self.end: dict[str, Any] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def add(self, frame: dict[str, Any], encoder: Encoder) -> None:
        """Encode one frame of pieces and keep what can be learnt from it."""
        if "end" in frame:
            self.end = frame["end"]
            return
        per = np.asarray(frame["per"], np.int64)
        first = np.cumsum(per) - per
        later = np.ones(len(frame["texts"]), bool)
        later[first] = False
        ids, lengths = encoder.encode(frame["texts"], later.tolist())
        learnt = np.repeat(np.frombuffer(frame["learnt"].encode(), np.uint8) - 48, lengths)
        self._per_row = len(per) // len(frame["digests"])
        self._kind = frame["kind"]
        self._keep(ids, learnt, np.add.reduceat(lengths, first), frame)

    def _keep(self, ids: Array, learnt: Array, lengths: Array, frame: dict[str, Any]) -> None:
        room = self._how.max_length
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(ids)) - np.repeat(starts, lengths)
        learnt = learnt * (place > 0)  # nothing comes before a first token, so it is never predicted
        kept_length = lengths if self._how.split_long else np.minimum(lengths, room)
        inside = place < np.repeat(kept_length, lengths)
        sums = np.concatenate([[0], np.cumsum(learnt * inside)])
        taught = sums[starts + lengths] - sums[starts]
        long = lengths > room if not self._how.split_long else np.zeros(len(lengths), bool)
        self._full.append(lengths.reshape(-1, self._per_row).max(axis=1))
        good = self._judge(long, taught, frame)
        if self._kind == "pair" and long.any():
            self._drop_same_after_cut(ids, starts, kept_length, good, frame)
        inside &= np.repeat(np.repeat(good, self._per_row), lengths)
        ids[inside].tofile(self._streams[0])
        learnt[inside].astype(np.uint8).tofile(self._streams[1])
        self._lengths.append(kept_length.reshape(-1, self._per_row)[good])
        self._taught.append(taught.reshape(-1, self._per_row)[good].sum(axis=1))
        self._digests.append(np.asarray(frame["digests"], np.int64)[good])
        self._files.append(np.asarray(frame["files"], np.int32)[good])
        if "cells" in frame:
            self._cells += [cell for cell, here in zip(frame["cells"], good.tolist(), strict=True) if here]

    def _judge(self, long: Array, taught: Array, frame: dict[str, Any]) -> Array:
        """Which rows stay; those that do not are remembered with the reason, those that were cut are noted."""
        long = np.any(long.reshape(-1, self._per_row), axis=1)
        empty = np.any((taught == 0).reshape(-1, self._per_row), axis=1)
        bad: Array
        if frame["kind"] == "prompt":
            bad = long
        elif self._too_long == "drop":
            bad = np.logical_or(long, empty)
        else:
            bad = empty
        for row in np.flatnonzero(bad).tolist():
            reason = "too_long" if long[row] else "no_trained_tokens"
            self._undone.append((frame["files"][row], frame["lines"][row], reason))
        for row in np.flatnonzero(long & ~bad).tolist():
            self._cut_lines.append((frame["files"][row], frame["lines"][row]))
        return ~bad

    def _drop_same_after_cut(
        self, ids: Array, starts: Array, kept: Array, good: Array, frame: dict[str, Any]
    ) -> None:
        """Pairs whose answers differ only behind max_length teach nothing: out with them, counted."""
        for row in np.flatnonzero(good).tolist():
            one, other = 2 * row, 2 * row + 1
            sides = [ids[starts[at] : starts[at] + kept[at]] for at in (one, other)]
            if np.array_equal(sides[0], sides[1]):
                good[row] = False
                self._undone.append((frame["files"][row], frame["lines"][row], "same_after_cut"))

    def _tallies(self) -> list[Tally]:
        tallies = [Tally.from_plain(one["tally"]) for one in self.end["files"]]
        for file, line, reason in self._undone:
            tallies[file].undo(reason, 1, [line], "", self.end["files"][file]["file"])
        for file, line in self._cut_lines:
            tallies[file].note("cut", line)
        return tallies

    def finish(self, held_out: Spool | None) -> dict[str, Any]:
        """Write the Arrow files and return the report. Raises FactoryError when no row is left."""
        self._close()
        tallies = self._tallies()
        lengths = _stacked(self._lengths, self._per_row)
        if not len(lengths):
            raise nothing_left(tallies, limit=limit_of([self._kind]))
        _refuse_unmasked(tallies)
        findings: list[Finding] = []
        train, out = self._split(lengths, held_out, findings)
        counts = {"train": self._write("train.arrow", train, lengths, findings)}
        if held_out is not None:
            held_out._close()
            other = _stacked(held_out._lengths, held_out._per_row)
            if not len(other):
                raise nothing_left(held_out._tallies(), "data.eval", limit=limit_of([self._kind]))
            counts["eval"] = held_out._write("eval.arrow", np.arange(len(other)), other, findings)
        elif len(out):
            counts["eval"] = self._write("eval.arrow", out, lengths, findings)
        report = self._report(tallies, counts, lengths)
        findings += [*_mix(report["files"]), *_findings(tallies, self.end)]
        if held_out is not None:
            findings += [
                replace(one, field="data.eval", message=f"Held-out rows: {one.message}")
                for one in _findings(held_out._tallies(), held_out.end)
            ]
        report["findings"] = [finding.to_json() for finding in findings]
        for path in self._folder.iterdir():
            if path.suffix in (".ids", ".learnt"):
                path.unlink()
        return report

    def summary(self) -> dict[str, Any]:
        """The report without writing anything, also when no row is left."""
        self._close()
        tallies = self._tallies()
        report = self._report(tallies, {}, _stacked(self._lengths, self._per_row))
        report["findings"] = [finding.to_json() for finding in _findings(tallies, self.end)]
        return report

    def _close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _split(self, lengths: Array, held_out: Spool | None, findings: list[Finding]) -> tuple[Array, Array]:
        """Row numbers to train on and to hold out. Who is held out hangs on a row's content and the seed alone, so
        equal rows never stand on both sides and new rows do not move old ones."""
        rows = np.arange(len(lengths))
        share = self._how.eval
        if held_out is not None or not isinstance(share, (int, float)) or share <= 0:
            return rows, rows[:0]
        wanted = max(1, round(share * len(rows))) if share < 1 else int(share)
        digests = np.concatenate(self._digests)
        order = np.argsort(digests, kind="stable")
        if wanted >= len(np.unique(digests)):
            findings.append(
                Finding(
                    "data_too_few_to_hold_out",
                    f"Nothing is held out: {len(rows):,} different rows are too few for data.eval {share:g}; "
                    "give a file of its own or leave it empty.",
                    "warning",
                    "data.eval",
                    share,
                )
            )
            return rows, rows[:0]
        border = digests[order[wanted - 1]]
        out = digests <= border
        return rows[~out], rows[out]

    def _write(self, name: str, rows: Array, lengths: Array, findings: list[Finding]) -> dict[str, int]:
        """Write the examples made of `rows`; returns counts of rows, sequences and tokens."""
        starts = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(lengths.shape)
        sides = [Spans(starts[rows, side], lengths[rows, side]) for side in range(lengths.shape[1])]
        path, cells = self._folder / name, self._chosen_cells(rows)
        with open_tokens(*self._paths) as tokens_of:
            if self._kind == "pair":
                examples = write_pairs(path, tokens_of, (sides[0], sides[1]), cells)
            else:
                spans = sides[0].split(self._how.max_length) if self._how.split_long else sides[0]
                if self._how.packing and self._kind == "learn":
                    packs = pack(spans.lengths.tolist(), self._how.max_length)
                    _note_packing(len(packs), spans, self._how.max_length, name, findings)
                    examples = write_packed(path, tokens_of, spans, packs)
                else:
                    examples = write_plain(path, tokens_of, spans, self._kind != "prompt", cells)
        tokens = int(lengths[rows].sum())
        return {
            "rows": len(rows),
            "sequences": examples,
            "tokens": tokens,
            "learnt": int(np.concatenate(self._taught)[rows].sum()),
        }

    def _chosen_cells(self, rows: Array) -> list[Any] | None:
        return [self._cells[row] for row in rows.tolist()] if self._cells else None

    def _report(self, tallies: Sequence[Tally], counts: dict[str, Any], lengths: Array) -> dict[str, Any]:
        files = []
        of_file = np.concatenate(self._files) if self._files else np.empty(0, np.int32)
        for number, info in enumerate(self.end["files"]):
            here = of_file == number
            files.append(
                {
                    **info,
                    "tally": tallies[number].to_plain(),
                    "used": int(here.sum()),
                    "tokens": int(lengths[here].sum()),
                }
            )
        total = merged(tallies)
        return {
            "read": total.read,
            "kept": total.kept,
            "reasons": dict(total.reasons),
            "examples": total.examples,
            "notes": dict(total.notes),
            "note_lines": total.note_lines,
            "labels": dict(total.labels),
            "lengths": length_report(
                np.concatenate(self._full) if self._full else np.empty(0, np.int64), self._how.max_length
            ),
            "counts": counts,
            "files": files,
            "ignored": self.end["ignored"],
            "prompts": self.end["prompts"],
            "child_peak_mib": self.end["peak_mib"],
            "max_length": self._how.max_length,
        }


def _findings(tallies: Sequence[Tally], end: dict[str, Any]) -> list[Finding]:
    from data.report import file_findings

    total = merged(tallies)
    return [*file_findings(end), *drop_findings(total), *note_findings(total)]


def _mix(files: Sequence[dict[str, Any]]) -> list[Finding]:
    """How much of the tokens each of several files gives."""
    total = sum(info["tokens"] for info in files)
    if len(files) < 2 or not total:
        return []
    shares = [
        f"{Path(info['file']).name} {info['used']:,} rows ({info['tokens'] / total:.0%} of the tokens)"
        for info in files
    ]
    more = f" and {len(files) - 10:,} more files" if len(files) > 10 else ""
    mix = {info["file"]: {"rows": info["used"], "tokens": info["tokens"]} for info in files}
    words = f"The mix: {', '.join(shares[:10])}{more}."
    return [Finding("data_mix", words, "note", "data.sources", len(files), {"files": mix})]


def _refuse_unmasked(tallies: Sequence[Tally]) -> None:
    """Raise FactoryError when more than a small share of the rows has no token that is known to be the answer's."""
    total = merged(tallies)
    lost = total.reasons["no_trained_tokens"] + total.reasons["mask_unclear"]
    if lost > MAX_UNMASKED * total.read:
        raise refuse(
            "data_masks_unclear",
            f"{lost:,} of {total.read:,} rows have no token to learn from: the template does not show where answers "
            "begin; choose another with model.template, or set stage.train_on: all.",
            field="model.template",
            value=lost,
        )


def length_report(lengths: Array, max_length: int) -> dict[str, Any]:
    """Lengths in tokens before cutting: quantiles, how many are too long, and bins that double."""
    bins, low = [], 1
    top = int(lengths.max(initial=1))
    while low <= top:
        high = low * 2 - 1
        bins.append([low, high, int(((lengths >= low) & (lengths <= high)).sum())])
        low *= 2
    points = np.percentile(lengths, [50, 90, 99], method="nearest") if len(lengths) else [0, 0, 0]
    return {
        "count": len(lengths),
        "total": int(lengths.sum()),
        "shortest": int(lengths.min(initial=top)) if len(lengths) else 0,
        "median": int(points[0]),
        "p90": int(points[1]),
        "p99": int(points[2]),
        "longest": top if len(lengths) else 0,
        "over_max_length": int((lengths > max_length).sum()),
        "bins": bins,
    }


def _stacked(parts: Sequence[Array], width: int) -> Array:
    return np.concatenate(parts) if parts else np.empty((0, width), np.int64)


def _note_packing(packs: int, spans: Spans, room: int, name: str, findings: list[Finding]) -> None:
    tokens = int(spans.lengths.sum())
    if packs == 1 and tokens < room and name == "train.arrow":
        findings.append(
            Finding(
                "data_packing_short",
                f"All rows together have {tokens:,} tokens, less than one packed sequence of {room:,}: "
                "they train as one shorter sequence.",
                "note",
                "stage.packing",
                tokens,
                fix={"stage.packing": False},
            )
        )
