"""What the child can be asked: rows, pieces ready to be encoded, a template tried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash

from data.flow import FileInfo, Flow, one_per_turn
from data.render import Renderer
from data.rows import Row, Unusable, shape_of
from data.settings import Choices
from data.sources import Resolved
from data.voice import Voice

BATCH = 1000
"""Rows per frame."""


def answer(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The frames for a request {do: rows|pieces, sources, needs, choices, ...}."""
    flow = Flow(
        [Resolved.from_plain(one) for one in request["sources"]],
        request["needs"],
        Choices(**request["choices"]),
        request.get("stage"),
        request.get("model"),
    )
    lengths: list[int] = []
    if request["do"] == "rows":
        yield from _rows(flow, request.get("limit"), bool(request.get("count_only")), lengths)
    else:
        yield from _pieces(flow, request)
    yield {
        "end": {
            "prompts": flow.prompts,
            "characters": lengths,
            "files": [info.to_plain() for info in flow.files],
            "ignored": flow.ignored,
            "peak_mib": peak_mib(),
        }
    }


def peak_mib() -> int | None:
    """Most memory this process held so far, MiB; None where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) // 1024 if found else None


def _rows(flow: Flow, limit: int | None, count_only: bool, lengths: list[int]) -> Iterator[dict[str, Any]]:
    """Canonical rows as they are, at most `limit`; or only looked at, their lengths in characters counted."""
    batch: list[Row] = []
    lines: list[int] = []
    seen: set[int] = set()
    last = (-1, -1, -1)
    for count, (number, line, row) in enumerate(flow, 1):
        texts: list[str] = []
        _texts_of(row, texts)
        whole = "\x1f".join(texts)
        here = (number, line, _digest(whole, 0))
        if here[2] in seen and here != last:
            flow.files[number].tally.note("duplicates", line)
        seen.add(here[2])
        last = here
        clean = row
        if (not whole.isascii() or "\x00" in whole) and _marks_in(whole, flow.files[number], line):
            clean = mended(row)
        if count_only:
            lengths.append(len(whole))
            continue
        batch.append(clean)
        lines.append(line)
        if len(batch) >= BATCH or count == limit:
            yield {"rows": batch, "lines": lines}
            batch, lines = [], []
        if count == limit:
            break
    if batch:
        yield {"rows": batch, "lines": lines}


def _pieces(flow: Flow, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rendered rows: {texts, learnt ("0"/"1" per text), per (texts per sequence), digests, lines, files}."""
    choices = Choices(**request["choices"])
    renderer = Renderer(Voice.from_plain(request["voice"]), request["train_on"], choices.wrap)
    batch = _Batch(request["seed"], choices.duplicates == "drop", request.get("with_rows", False))
    count, limit = 0, request.get("limit")
    for number, line, row in flow:
        info = flow.files[number]
        for one in one_per_turn(row) if choices.one_per_turn else (row,):
            batch.add(renderer, one, number, line, info)
        count += 1
        if len(batch.digests) >= BATCH or count == limit:
            yield batch.take()
        if count == limit:
            break
    if batch.digests:
        yield batch.take()


class _Batch:
    """Rendered rows on their way to the parent."""

    def __init__(self, seed: int, drop_duplicates: bool, with_rows: bool) -> None:
        self._seed, self._drop, self._with_rows = seed, drop_duplicates, with_rows
        self._seen: set[int] = set()
        self._last = (-1, -1, -1)
        self.kind = "learn"
        self._empty()

    def _empty(self) -> None:
        self.cells: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.learnt: list[str] = []
        self.per: list[int] = []
        self.digests: list[int] = []
        self.lines: list[int] = []
        self.files: list[int] = []
        self.rows: list[Row] = []

    def take(self) -> dict[str, Any]:
        """The frame, and start over."""
        frame: dict[str, Any] = {
            "kind": self.kind,
            "texts": self.texts,
            "learnt": "".join(self.learnt),
            "per": self.per,
            "digests": self.digests,
            "lines": self.lines,
            "files": self.files,
        }
        if self._with_rows:
            frame["rows"] = self.rows
        if any(self.cells):
            frame["cells"] = self.cells
        self._empty()
        return frame

    def add(self, renderer: Renderer, row: Row, number: int, line: int, info: FileInfo) -> None:
        """Render one row; what cannot be rendered is counted as dropped."""
        quick = renderer.quick(row)
        if quick is not None:
            texts, learnt = quick
            per = [len(texts)]
        else:
            try:
                sequences = renderer.sequences(row)
            except Unusable as reason:
                info.tally.undo(reason.reason, 1, [line], reason.text, info.file)
                return
            for code in renderer.notes:
                info.tally.note(code, line)
            renderer.notes.clear()
            texts = [text for pieces in sequences for text, _ in pieces]
            learnt = "".join(["1" if here else "0" for pieces in sequences for _, here in pieces])
            per = [len(pieces) for pieces in sequences]
        whole = "\x1f".join(texts)
        if (not whole.isascii() or "\x00" in whole) and _marks_in(whole, info, line):
            texts = [_mend(text) for text in texts]
            whole = "\x1f".join(texts)
        if self._repeats((number, line, _digest(whole, self._seed)), info):
            return
        self.texts += texts
        self.learnt.append(learnt)
        self.per += per
        self.lines.append(line)
        self.files.append(number)
        self.cells.append(cells_of(row))
        if "messages" not in row:
            self.kind = _KINDS.get(shape_of(row), "learn")
        if self._with_rows:
            self.rows.append(row)

    def _repeats(self, here: tuple[int, int, int], info: FileInfo) -> bool:
        """Whether the row repeats an earlier one and is to be left out. A row used twice by its weight is no repeat."""
        number, line, digest = here
        if digest in self._seen and here != self._last:
            if self._drop:
                info.tally.undo("duplicate", 1, [line], "", info.file)
                return True
            info.tally.note("duplicates", line)
        self._seen.add(digest)
        self._last = here
        self.digests.append(digest)
        return False


_KINDS = {"preference": "pair", "prompt": "prompt"}


def cells_of(row: Row) -> dict[str, Any]:
    """What a row brings besides its texts: label, margin, answer, free columns for rewards (as JSON text)."""
    if "messages" in row or "text" in row:
        return {}
    cells: dict[str, Any] = {key: row[key] for key in ("label", "margin", "answer") if key in row}
    if shape_of(row) == "prompt":
        cells["prompt"] = prompt_text(row["prompt"])
    if row.get("extra"):
        cells["extra"] = json.dumps(row["extra"], ensure_ascii=False, default=str)
    return cells


def prompt_text(prompt: Any) -> str:
    """A prompt as rewards read it: the text, or what all turns say, one under the other."""
    return prompt if isinstance(prompt, str) else "\n".join(str(turn["content"]) for turn in prompt)


def _digest(text: str, seed: int) -> int:
    # 63 bits: JSON readers elsewhere take no unsigned 64-bit numbers.
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"), seed) >> 1


def _marks_in(text: str, info: FileInfo, line: int) -> bool:
    """Note characters that tell of damage; True when some must be taken out."""
    if "\ufffd" in text:
        info.tally.note("replacement", line)
    if "\ufeff" in text:
        info.tally.note("bom", line)
    nul = "\x00" in text
    if nul:
        info.tally.note("nul", line)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        info.tally.note("surrogate", line)
        return True
    return nul


def _mend(text: str) -> str:
    return text.replace("\x00", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _texts_of(value: Any, into: list[str]) -> None:
    if isinstance(value, str):
        into.append(value)
    elif isinstance(value, dict):
        for one in value.values():
            _texts_of(one, into)
    elif isinstance(value, list):
        for one in value:
            _texts_of(one, into)


def mended(value: Any) -> Any:
    """The value with every text free of NULs and half characters."""
    if isinstance(value, str):
        return _mend(value)
    if isinstance(value, dict):
        return {key: mended(one) for key, one in value.items()}
    if isinstance(value, list):
        return [mended(one) for one in value]
    return value
