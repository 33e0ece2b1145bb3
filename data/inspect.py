"""What a file holds, told before anything is trained: format, columns, counts, lengths, stages it fits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.child import ask_child
from data.errors import Finding
from data.report import Tally, drop_findings, file_findings, merged, note_findings
from data.settings import DataSettings
from data.sources import Resolved, resolve, total_bytes

if TYPE_CHECKING:
    from data.prepare import PrepareSettings


def request_for(
    wish: DataSettings, resolved: Sequence[Resolved], needs: Sequence[str], stage: str | None
) -> dict[str, Any]:
    """The part of a request to the child that says which rows are meant."""
    return {
        "sources": [one.to_plain() for one in resolved],
        "needs": list(needs),
        "choices": asdict(wish.choices),
        "stage": stage,
    }


def rows(
    data: Mapping[str, Any], needs: Sequence[str], stage: str | None, limit: int | None
) -> Iterator[dict[str, Any]]:
    """The canonical rows of the data, at most `limit`. Raises FactoryError when they cannot be read."""
    wish = DataSettings.from_plain(data)
    resolved = resolve(wish)
    request = {**request_for(wish, resolved, needs, stage), "do": "rows", "limit": limit}
    for frame in ask_child(request, total_bytes(resolved)):
        yield from frame.get("rows", ())


def inspect(
    data: Mapping[str, Any],
    needs: Sequence[str] = (),
    stage: str | None = None,
    tokenizer: Any = None,
    how: PrepareSettings | None = None,
) -> dict[str, Any]:
    """The report on a file that `factory data inspect --json` prints.

    With a tokenizer, lengths are tokens and rows that do not survive rendering and cutting are counted as dropped;
    without one, lengths are characters. Raises FactoryError when the file cannot be read at all.
    """
    wish = DataSettings.from_plain(data)
    resolved = resolve(wish)
    request = request_for(wish, resolved, needs, stage)
    if tokenizer is None:
        report = _by_characters(request, resolved)
    else:
        report = _by_tokens(request, resolved, wish, tokenizer, how)
    return report


def _by_characters(request: Mapping[str, Any], resolved: Sequence[Resolved]) -> dict[str, Any]:
    import numpy as np

    from data.spool import length_report

    end: dict[str, Any] = {}
    for frame in ask_child({**request, "do": "rows", "count_only": True}, total_bytes(resolved)):
        end = frame.get("end", end)
    tally = total(end)
    lengths = length_report(np.asarray(end["characters"], np.int64), 2**62)
    del lengths["over_max_length"]
    return _told(end, tally, {"unit": "characters", **lengths}, request["stage"])


def _by_tokens(
    request: Mapping[str, Any],
    resolved: Sequence[Resolved],
    wish: DataSettings,
    tokenizer: Any,
    how: PrepareSettings | None,
) -> dict[str, Any]:
    from data.prepare import PrepareSettings
    from data.spool import Spool
    from data.tokens import Encoder
    from data.voice import Voice

    how = how or PrepareSettings()
    told: list[Finding] = []
    encoder = Encoder(tokenizer, told.append)
    asked = {
        **request,
        "do": "pieces",
        "voice": Voice.of(tokenizer).to_plain(),
        "train_on": how.train_on,
        "seed": how.seed,
        "model": tokenizer.name_or_path,
    }
    with tempfile.TemporaryDirectory(prefix="factory-inspect-") as folder:
        with Spool(Path(folder), how, wish.too_long) as spool:
            for frame in ask_child(asked, total_bytes(resolved)):
                spool.add(frame, encoder)
            summary = spool.summary()
    tally = Tally.from_plain(summary)
    lengths = {"unit": "tokens", "max_length": how.max_length, **summary["lengths"]}
    report = _told(spool.end, tally, lengths, request["stage"])
    report["findings"] += [finding.to_json() for finding in told]
    return report


def total(end: Mapping[str, Any]) -> Tally:
    """The tallies of all files of a reading, added up."""
    return merged([Tally.from_plain(info["tally"]) for info in end["files"]])


def _told(end: Mapping[str, Any], tally: Tally, lengths: dict[str, Any], stage: str | None) -> dict[str, Any]:
    first = end["files"][0]
    findings = [
        *file_findings(dict(end)),
        *shape_findings(end, stage),
        *label_findings(tally),
        *drop_findings(tally),
        *note_findings(tally),
    ]
    return {
        "format": first["format"],
        "sure": first["sure"],
        "columns": {word: name for word, name in first["columns"].items() if word != "border"},
        "names": first["names"],
        "why": first["why"],
        "read": tally.read,
        "kept": tally.kept,
        "reasons": dict(tally.reasons),
        "examples": tally.examples,
        "lengths": lengths,
        "duplicates": tally.notes["duplicates"],
        "labels": dict(tally.labels),
        "stages": first["stages"],
        "files": [
            {key: info[key] for key in ("file", "kind", "encoding", "detail", "format", "shape")}
            for info in end["files"]
        ],
        "ignored": end["ignored"],
        "findings": [finding.to_json() for finding in findings],
    }


def shape_findings(end: Mapping[str, Any], stage: str | None) -> list[Finding]:
    """A word where the rows fit the stage but are probably meant for another, or could be learnt better."""
    found: list[Finding] = []
    shapes = {info["shape"] for info in end["files"]}
    columns = ", ".join(dict.fromkeys(info["columns"].get("text", "") for info in end["files"])).strip(", ")
    if stage == "sft" and "text" in shapes:
        found.append(
            Finding(
                "data_text_in_sft",
                f"The file has only a text column ({columns}), so stage sft trains on the full text: "
                "use stage pretrain for documents, or keep sft with stage.train_on: all to say that this is meant.",
                "warning",
                "stage",
                "sft",
                {"column": columns},
                {"stage.name": "pretrain"},
            )
        )
    if (
        stage == "sft"
        and "completion" in shapes
        and any(info["format"] == "prompt_completion" for info in end["files"])
    ):
        found.append(
            Finding(
                "data_plain_prompts",
                "Prompts and completions that are plain texts are joined as they are; data.wrap: chat puts them into "
                "the model's chat form, which suits a chat model better.",
                "note",
                "data.wrap",
                None,
                fix={"data.wrap": "chat"},
            )
        )
    return found


def label_findings(tally: Tally) -> list[Finding]:
    """The balance of good and bad labels."""
    good, bad = tally.labels["good"], tally.labels["bad"]
    if not good + bad:
        return []
    level = "note" if good and bad and max(good, bad) <= 10 * min(good, bad) else "warning"
    text = f"Labels: {good:,} good (desirable), {bad:,} bad (undesirable)."
    if level == "warning":
        text += " Training needs both: weigh the rarer kind up or add rows of it."
    return [
        Finding("data_label_balance", text, "warning" if level == "warning" else "note", "data", [good, bad],
                {"good": good, "bad": bad})
    ]  # fmt: skip
