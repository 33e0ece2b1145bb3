"""Files to canonical rows: detect, map, check, tidy, count. Runs inside the parsing child."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.detect import GUESS, choose, explain, stages_for
from data.errors import FactoryError, refuse
from data.formats import format_module
from data.formats.base import Match, gathers
from data.read import FileRows, read_file
from data.readers.json_rows import Item
from data.report import Tally
from data.rows import Row, Turn, Unusable, check_row, says_something
from data.settings import Choices
from data.sources import Resolved

PROMPTS = 10
"""Questions kept to ask before and after training."""
SAMPLE = 256
"""Records looked at to find the format."""
NAMES = 100
"""Column names that are told, for somebody to choose from."""


@dataclass
class FileInfo:
    """What was understood of one file."""

    file: str
    kind: str
    encoding: str | None
    detail: str
    match: Match
    shape: str
    stages: dict[str, bool | str]
    names: list[str] = field(default_factory=list)
    """Columns of the records looked at, at most NAMES."""
    tally: Tally = field(default_factory=Tally)
    used: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON for the report."""
        return {
            "file": self.file,
            "kind": self.kind,
            "encoding": self.encoding,
            "detail": self.detail,
            "format": self.match.format,
            "sure": self.match.sure,
            "columns": dict(self.match.columns),
            "names": self.names,
            "why": self.match.why,
            "asks": [ask.to_json() for ask in self.match.asks],
            "shape": self.shape,
            "stages": self.stages,
            "tally": self.tally.to_plain(),
            "used": self.used,
        }


class Flow:
    """The canonical rows of all sources for one stage, in order; `files` says what was understood, as it goes."""

    def __init__(
        self,
        resolved: Sequence[Resolved],
        needs: Sequence[str],
        choices: Choices,
        stage: str | None = None,
        model: str | None = None,
    ) -> None:
        self._model = model
        self._resolved, self._needs, self._choices, self._stage = resolved, tuple(needs), choices, stage
        self.files: list[FileInfo] = []
        self.ignored: dict[str, str] = {}
        self.prompts: list[str] = []

    def __iter__(self) -> Iterator[tuple[int, int, Row]]:
        """(number of the file in `files`, line, row), weights applied. Raises FactoryError when nothing can be read."""
        for resolved in self._resolved:
            self.ignored.update(resolved.ignored)
            yield from self._source(resolved)

    def _source(self, resolved: Resolved) -> Iterator[tuple[int, int, Row]]:
        source, taken, seen = resolved.source, 0, 0
        for opened, items, info in self._opened(resolved):
            number = len(self.files)
            self.files.append(info)
            try:
                for line, row in self._rows(opened, items, info):
                    copies = int((seen + 1) * source.weight) - int(seen * source.weight)
                    seen += 1
                    info.used += copies
                    if len(self.prompts) < PROMPTS:
                        self._keep_prompt(row)
                    for _ in range(copies):
                        yield number, line, row
                    taken += 1
                    if taken == source.take:
                        break
            finally:
                opened.close()
                for code, lines in opened.notes.items():
                    info.tally.notes[code] += len(lines)
                    info.tally.note_lines.setdefault(code, []).extend(lines[:20])
            if taken == source.take:
                return

    def _keep_prompt(self, row: Row) -> None:
        prompt = question_of(row)
        if prompt and prompt not in self.prompts:
            self.prompts.append(prompt)

    def _opened(self, resolved: Resolved) -> Iterator[tuple[FileRows, Iterator[Item], FileInfo]]:
        """The files worth reading, each with its format. A lone file that does not fit is refused; in a folder the
        files of the most common kind are taken and the others are listed as ignored."""
        if len(resolved.files) == 1:
            yield self._look(resolved.files[0], resolved)
            return
        fits, last = self._sort_out(resolved)
        if not fits:
            assert last is not None
            raise last
        for file in fits:
            yield self._look(file, resolved)

    def _sort_out(self, resolved: Resolved) -> tuple[list[str], FactoryError | None]:
        by_format: dict[str, list[str]] = {}
        sure: set[str] = set()
        last: FactoryError | None = None
        for file in resolved.files:
            try:
                opened, _, info = self._look(file, resolved)
                opened.close()
            except FactoryError as error:
                last = error
                self.ignored[file] = error.findings[0].message
            else:
                by_format.setdefault(info.match.format, []).append(file)
                if info.match.sure > GUESS:
                    sure.add(info.match.format)
        if not by_format:
            return [], last
        chosen = max(by_format, key=lambda name: (name in sure, _bytes(by_format[name])))
        for name, files in by_format.items():
            if name != chosen:
                self.ignored.update({file: f"format {name}, while most files are {chosen}" for file in files})
        return by_format[chosen], last

    def _look(self, file: str, resolved: Resolved) -> tuple[FileRows, Iterator[Item], FileInfo]:
        opened = read_file(Path(file), resolved.source, self._choices.documents)
        try:
            return self._understand(opened, resolved)
        except BaseException:
            opened.close()
            raise

    def _understand(self, opened: FileRows, resolved: Resolved) -> tuple[FileRows, Iterator[Item], FileInfo]:
        sample = list(itertools.islice(opened.items, SAMPLE))
        records = [record for _, record in sample if not isinstance(record, Unusable)]
        if not records:
            raise _nothing(opened, sample)
        found = explain(records, resolved.source)
        match, shape = choose(found, self._needs, self._stage)
        refuse_pictures(records, match, self._model)
        names = list(dict.fromkeys(str(name) for record in records for name in record))[:NAMES]
        info = FileInfo(
            str(opened.path),
            opened.kind,
            opened.encoding,
            opened.detail,
            match,
            shape,
            stages_for(found),
            names,
        )
        return opened, itertools.chain(sample, opened.items), info

    def _rows(self, opened: FileRows, items: Iterator[Item], info: FileInfo) -> Iterator[tuple[int, Row]]:
        module = format_module(info.match.format)
        if gathers(module, info.shape):
            items = module.gather(items, info.shape, info.match, self._choices)
        to_rows, tally, choices = module.to_rows, info.tally, self._choices
        file, match, shape = str(opened.path), info.match, info.shape
        for line, record in items:
            if isinstance(record, Unusable):
                tally.drop(record, line, file)
                continue
            try:
                made = to_rows(record, shape, match, choices)
            except Unusable as reason:
                tally.drop(reason, line, file)
                continue
            for row in made:
                if isinstance(row, Unusable):
                    tally.drop(row, line, file)
                    continue
                if choices.keep and shape == "prompt":
                    kept = {key: record[key] for key in choices.keep if key in record}
                    row["extra"] = {**row.get("extra", {}), **kept}
                try:
                    tidy(row, choices, tally, line)
                    check_row(row)
                except Unusable as reason:
                    tally.drop(reason, line, file)
                    continue
                tally.read += 1
                tally.kept += 1
                if "label" in row:
                    tally.labels["good" if row["label"] else "bad"] += 1
                yield line, row


def _bytes(files: Sequence[str]) -> int:
    return sum(Path(file).stat().st_size for file in files)


def question_of(row: Row) -> str:
    """The first question of a row, or how its text begins."""
    if "text" in row:
        return str(row["text"])[:60].rsplit(" ", 1)[0].strip()
    turns: Any = row.get("messages", row.get("prompt", ""))
    if isinstance(turns, str):
        return turns.strip()
    return next((str(turn["content"]).strip() for turn in turns if turn["role"] == "user"), "")


def refuse_pictures(records: Sequence[Mapping[str, Any]], match: Match, model: str | None) -> None:
    """Raise FactoryError for rows with pictures, naming the column: all models here read text only."""
    column = match.columns.get("images")
    if column is None or not any(record.get(column) for record in records):
        column = next((c for c in match.columns.values() if any(_pictures(r.get(c)) for r in records)), None)
    if column is None:
        return
    raise refuse(
        "data_needs_vision",
        f"Column {column} holds pictures, which need a vision model, and {model or 'the model'} is text only: "
        "take the pictures out or choose rows without them.",
        field="data.path",
        value=column,
        column=column,
        model=model,
    )


def _pictures(value: Any) -> bool:
    """True for turns with a picture among their parts."""
    if not isinstance(value, list):
        return False
    parts = [
        part
        for turn in value
        if isinstance(turn, dict) and isinstance(turn.get("content"), list)
        for part in turn["content"]
    ]
    return any(isinstance(part, dict) and part.get("type") not in (None, "text") for part in parts)


def _nothing(opened: FileRows, sample: Sequence[Item]) -> FactoryError:
    name = opened.path.name
    if not sample:
        return refuse(
            "data_empty", f"{name} holds no rows: choose a file with rows.", field="data.path", value=name
        )
    line, first = sample[0]
    assert isinstance(first, Unusable)
    from data.rows import reason_words

    return refuse(
        "data_only_broken_rows",
        f"No row of {name} can be read; line {line}: {reason_words(first.reason)}"
        f"{f' ({first.text[:120]})' if first.text else ''}: repair the file or choose another.",
        field="data.path",
        value=name,
        line=line,
        reason=first.reason,
    )


def tidy(row: Row, choices: Choices, tally: Tally, line: int) -> None:
    """Merge, keep or refuse repeated roles as chosen, and note what else is odd about the order of turns."""
    for key in ("messages", "prompt"):
        turns = row.get(key)
        if type(turns) is list and turns:
            row[key] = _in_order(turns, choices, tally, line, key == "messages")


_ORDINARY: dict[tuple[str, ...], bool] = {}
"""Whether a pattern of roles has nothing to note, for the patterns seen; most rows of a file share a few."""


def _in_order(turns: list[Turn], choices: Choices, tally: Tally, line: int, answered: bool) -> list[Turn]:
    roles = [turn["role"] for turn in turns]
    key = tuple(roles)
    ordinary = _ORDINARY.get(key)
    if ordinary is None and len(_ORDINARY) < 10_000:
        body = roles[1:] if roles[0] == "system" else roles
        ordinary = _ORDINARY[key] = body == ["user", "assistant"] * (len(body) // 2) and bool(body)
    if ordinary and all([turn["content"].strip() for turn in turns]):
        return turns
    if any(map(str.__eq__, roles, roles[1:])):
        turns = _repeated(turns, choices, tally, line)
        roles = [turn["role"] for turn in turns]
    first = roles[1] if roles[0] == "system" and len(roles) > 1 else roles[0]
    if first == "assistant":
        tally.note("starts_with_answer", line)
    if answered and roles[-1] == "user":
        tally.note("ends_with_question", line)
    if "system" in roles[1:]:
        tally.note("system_not_first", line)
    if not all(map(says_something, turns)):
        tally.note("empty_turns", line)
    return turns


def _repeated(turns: list[Turn], choices: Choices, tally: Tally, line: int) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        before = merged[-1] if merged else None
        if (
            before is not None
            and before["role"] == turn["role"]
            and turn["role"] != "tool"
            and _mergeable(before, turn)
        ):
            merged[-1] = {**before, "content": "\n".join(filter(None, (before["content"], turn["content"])))}
        else:
            merged.append(turn)
    if len(merged) == len(turns):
        return turns
    if choices.turns == "drop":
        raise Unusable("turns_not_alternating", ", ".join(turn["role"] for turn in turns[:8]))
    tally.note("merged_turns" if choices.turns == "merge" else "kept_repeated_turns", line)
    return merged if choices.turns == "merge" else turns


def _mergeable(one: Turn, other: Turn) -> bool:
    """Plain texts only: tool calls, reasoning and weights belong to their own turn."""
    return len(one) == 2 and len(other) == 2


def one_per_turn(row: Row) -> Iterator[Row]:
    """A conversation as one row per assistant turn, each ending with it and teaching only it."""
    turns = row.get("messages")
    if not isinstance(turns, list):
        yield row
        return
    for at, turn in enumerate(turns):
        if turn["role"] == "assistant":
            before = [{**t, "weight": 0.0} if t["role"] == "assistant" else t for t in turns[:at]]
            yield {**row, "messages": [*before, turn]}
