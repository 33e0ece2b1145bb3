"""What happened to the rows of a file: counted, with examples, and told in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.errors import FactoryError, Finding, Level, findings_of, refuse
from data.rows import Unusable, reason_words

EXAMPLES = 20
"""Examples kept per reason."""


@dataclass
class Tally:
    """Counts of one reading. `read` = `kept` + the sum of `reasons`."""

    read: int = 0
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    note_lines: dict[str, list[int]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: Unusable, line: int, file: str) -> None:
        """Count a dropped row, with its line and what was seen."""
        self.drop_many(reason.reason, 1)
        kept = self.examples.setdefault(reason.reason, [])
        if len(kept) < EXAMPLES:
            kept.append({"line": line, "text": reason.text, "file": file})

    def drop_many(self, reason: str, count: int) -> None:
        """Count dropped rows without examples."""
        self.read += count
        self.reasons[reason] += count

    def undo(self, reason: str, rows: int, lines: list[int], text: str, file: str) -> None:
        """Turn `rows` kept rows into dropped ones (found after reading: too long, nothing to learn)."""
        self.kept -= rows
        self.reasons[reason] += rows
        kept = self.examples.setdefault(reason, [])
        kept += [{"line": line, "text": text, "file": file} for line in lines[: EXAMPLES - len(kept)]]

    def note(self, code: str, line: int) -> None:
        """Count something worth telling about a kept row."""
        self.notes[code] += 1
        lines = self.note_lines.setdefault(code, [])
        if len(lines) < EXAMPLES:
            lines.append(line)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "read": self.read,
            "kept": self.kept,
            "reasons": dict(self.reasons),
            "examples": self.examples,
            "notes": dict(self.notes),
            "note_lines": self.note_lines,
            "labels": dict(self.labels),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Tally:
        """The inverse of `to_plain`."""
        return cls(
            plain["read"],
            plain["kept"],
            Counter(plain["reasons"]),
            {reason: list(seen) for reason, seen in plain["examples"].items()},
            Counter(plain["notes"]),
            {code: list(lines) for code, lines in plain["note_lines"].items()},
            Counter(plain["labels"]),
        )


_NOTES: Mapping[str, tuple[str, str]] = {
    "merged_turns": (
        "note",
        "{n} had several turns of one role in a row, which were merged (data.turns: keep or drop).",
    ),
    "kept_repeated_turns": ("warning", "{n} {have} several turns of one role in a row, kept as asked."),
    "starts_with_answer": ("note", "{n} begin{s} with an assistant turn."),
    "ends_with_question": (
        "note",
        "{n} end{s} with a user turn, which nothing answers: it is read but not learnt.",
    ),
    "system_not_first": ("note", "{n} {have} a system turn that is not the first."),
    "empty_turns": ("warning", "{n} {have} an empty turn; where it is the assistant's, it is not learnt."),
    "nul": ("warning", "{n} contain{s} NUL characters, which were taken out."),
    "bom": ("note", "{n} contain{s} byte order marks inside the text."),
    "replacement": (
        "warning",
        "{n} contain{s} replacement characters (\ufffd): letters were lost before the import.",
    ),
    "surrogate": ("warning", "{n} contained half characters (lone surrogates), now replacement characters."),
    "bad_bytes": (
        "warning",
        "{n} hold{s} bytes that are not in the file's encoding, now replacement characters (\ufffd).",
    ),
    "several_on_a_line": (
        "note",
        "{n} hold{s} several objects on one line; all were read. First at line {lines}.",
    ),
    "columns_transposed": (
        "note",
        "The file holds columns (as pandas writes them); they were turned into rows.",
    ),
    "unbalanced_quote": (
        "warning",
        "{n} {have} a double quote that is never closed; they were read with quotes as letters (line {lines}).",
    ),
    "duplicates": ("note", "{n} repeat{s} an earlier row (data.duplicates: drop takes them out)."),
    "reasoning_dropped": (
        "warning",
        "{n} {have} reasoning in an earlier turn that the template leaves out: reasoning is kept only in the last turn "
        "(data.one_per_turn: true makes one sample per turn, each with its own).",
    ),
    "tools_dropped": (
        "warning",
        "{n} {have} tools or tool calls that the chat template does not show: they would be lost; choose a template "
        "with tools (chatml, qwen, llama3) by model.template.",
    ),
    "double_bos": ("warning", "{n} {were} rendered with two BOS tokens; one was kept."),
    "turn_end_missing": (
        "note",
        "{n} end{s} without an end mark in the template; the end-of-text token was added, so that stopping is learnt.",
    ),
    "template_varies": (
        "warning",
        "{n} {were} rendered otherwise than the rows before them; each row is now checked.",
    ),
    "cut": ("warning", "{n} {are} longer than max_length and {were} cut at the end."),
}


def note_findings(tally: Tally) -> list[Finding]:
    """The notes of a tally as findings."""
    found = []
    for code, count in tally.notes.items():
        if ":" in code:
            found.append(_told(code))
            continue
        level, words = _NOTES.get(code, ("note", f"{code}: {{n}}."))
        lines = ", ".join(map(str, tally.note_lines.get(code, [])[:5]))
        found.append(
            Finding(
                f"data_{code}",
                words.format(n=_rows(count), lines=lines or "?", **_verbs(count)),
                "warning" if level == "warning" else "note",
                "data",
                count,
                {"count": count, "lines": tally.note_lines.get(code, [])},
            )
        )
    return found


_TOLD: Mapping[str, tuple[str, str]] = {
    "encoding": ("data_encoding", "The text is in {what}, not UTF-8 (data.encoding sets another)."),
    "unpacked": ("data_unpacked", "The file was unpacked while reading ({what})."),
    "wrapped_in": ("data_wrapped", "The rows were found in the field {what}."),
    "sheet": ("data_sheet", "The rows were read from the sheet {what} (data.sheet picks another)."),
}


def _told(code: str) -> Finding:
    kind, _, what = code.partition(":")
    stable, words = _TOLD[kind]
    level: Level = "warning" if kind == "encoding" else "note"
    return Finding(stable, words.format(what=what), level, "data.path", what, {"what": what})


def _verbs(count: int) -> dict[str, str]:
    one = count == 1
    return {
        "s": "s" if one else "",
        "have": "has" if one else "have",
        "are": "is" if one else "are",
        "were": "was" if one else "were",
    }


def drop_findings(tally: Tally) -> list[Finding]:
    """One warning per reason rows were dropped for, with the first lines."""
    found = []
    for reason, count in tally.reasons.most_common():
        seen = tally.examples.get(reason, [])
        lines = ", ".join(str(one["line"]) for one in seen[:5])
        found.append(
            Finding(
                "data_rows_dropped",
                f"{_rows(count)} dropped: {reason_words(reason)}{_first_words(tally, reason)}; line {lines or '?'}.",
                "warning",
                "data",
                count,
                {"reason": reason, "count": count},
            )
        )
    return found


def _first_words(tally: Tally, reason: str) -> str:
    """What the first row that was dropped for a reason shows of it, in brackets."""
    first = next((one["text"] for one in tally.examples.get(reason, []) if one["text"]), "")
    return f" ({first[:80]})" if first else ""


def file_findings(end: Mapping[str, Any]) -> list[Finding]:
    """What was understood of each file and is worth a word: encoding, wrapping, choices, files left out."""
    found: list[Finding] = []
    for info in end["files"]:
        name = info["file"].rsplit("/", 1)[-1]
        found += [Finding(**{**ask, "params": ask["params"] or {}}) for ask in info["asks"]]
        if info["sure"] < 0.7:
            columns = ", ".join(f"{word} = {column}" for word, column in info["columns"].items())
            found.append(
                Finding(
                    "data_format_guessed",
                    f"{name} was read as format {info['format']} ({columns}), a guess: "
                    "set data.columns if it is wrong.",
                    "warning",
                    "data.columns",
                    info["format"],
                )
            )
    if end["ignored"]:
        listed = "; ".join(
            f"{file.rsplit('/', 1)[-1]} ({why})" for file, why in list(end["ignored"].items())[:5]
        )
        found.append(
            Finding(
                "data_files_ignored",
                f"{len(end['ignored'])} of the files were left out: {listed}.",
                "warning",
                "data.path",
                len(end["ignored"]),
                {"files": dict(end["ignored"])},
            )
        )
    return found


def merged(tallies: Sequence[Tally]) -> Tally:
    """The sum of several tallies, examples of each kept up to the usual number."""
    total = Tally()
    for one in tallies:
        total.read += one.read
        total.kept += one.kept
        total.reasons.update(one.reasons)
        total.notes.update(one.notes)
        total.labels.update(one.labels)
        for reason, seen in one.examples.items():
            total.examples[reason] = [*total.examples.get(reason, []), *seen][:20]
        for code, lines in one.note_lines.items():
            total.note_lines[code] = [*total.note_lines.get(code, []), *lines][:20]
    return total


def limit_of(needs: Sequence[str]) -> str:
    """The field that bounds a stage's rows, by the shapes it needs: stages that sample bound the prompt."""
    return "stage.max_prompt_length" if "prompt" in needs else "stage.max_length"


def nothing_left(
    tallies: Sequence[Tally], field: str = "data.path", *, limit: str = "stage.max_length"
) -> FactoryError:
    """The refusal when no row is left to learn from, with the counts; `limit` names the longest row's field."""
    total = merged(tallies)
    counted = "; ".join(
        f"{reason_words(reason)}{_first_words(total, reason)}: {count:,}"
        for reason, count in total.reasons.most_common(4)
    )
    masked = total.reasons["no_trained_tokens"] + total.reasons["no_answer"] + total.reasons["empty_answer"]
    code = "data_nothing_to_learn" if masked == total.read and masked else "data_no_rows_left"
    todo = (
        "name another template with model.template"
        if total.reasons["template_refused"] == total.read and total.read
        else "no row has an answer to learn: check the roles, or set stage.train_on: all"
        if code == "data_nothing_to_learn"
        else f"repair the rows, or raise {limit} where they are too long"
    )
    return refuse(
        code,
        f"None of {_rows(total.read)} is left to train on ({counted or 'the file is empty'}): {todo}.",
        field=field,
        value=total.read,
        reasons=dict(total.reasons),
    )


def quick_findings(data: Mapping[str, Any], needs: Sequence[str], stage: str | None = None) -> list[Finding]:
    """What a look at the first rows of the data tells (data.look).

    `data` is a DataSpec's plain JSON. An empty list means that all is well; nothing is raised for bad data.
    """
    from data.look import look

    return findings_of(look(data, needs, stage).findings)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
