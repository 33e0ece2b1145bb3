"""The first rows as the trainer gets them: the rendered text and every token with its mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data.child import ask_child
from data.errors import Finding
from data.inspect import label_findings, request_for, shape_findings
from data.report import Tally, drop_findings, file_findings, note_findings
from data.settings import DataSettings
from data.sources import resolve, total_bytes
from data.tokens import Encoder
from data.voice import Voice

if TYPE_CHECKING:
    from data.prepare import PrepareSettings

SIDES = {"pair": ("chosen", "rejected"), "prompt": ("prompt",), "learn": ("row",)}


def preview(
    data: Mapping[str, Any], needs: Sequence[str], tokenizer: Any, how: PrepareSettings, count: int
) -> dict[str, Any]:
    """{rows, findings}: each row is {line, row, sequences: [{name, text, tokens: [{id, text, mask}], length}]}.

    `mask` is learnt, read (not trained), cut (behind max_length) or padding, as when these rows are one batch.
    Raises FactoryError when the rows cannot be read or do not fit the stage.
    """
    wish = DataSettings.from_plain(data)
    resolved = resolve(wish)
    told: list[Finding] = []
    encoder = Encoder(tokenizer, told.append)
    voice = Voice.of(tokenizer)
    request = {
        **request_for(wish, resolved, needs, how.stage),
        "do": "pieces",
        "voice": voice.to_plain(),
        "train_on": how.train_on,
        "seed": how.seed,
        "model": tokenizer.name_or_path,
        "limit": count,
        "with_rows": True,
    }
    rows: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    for frame in ask_child(request, total_bytes(resolved)):
        if "end" in frame:
            end = frame["end"]
        else:
            rows += _rows(frame, encoder, tokenizer, how)
    rows = rows[:count]
    _pad(rows, how, tokenizer)
    tally = Tally()
    for info in end["files"]:
        one = Tally.from_plain(info["tally"])
        tally.notes.update(one.notes)
        tally.note_lines.update(one.note_lines)
        tally.reasons.update(one.reasons)
        tally.examples.update(one.examples)
        tally.labels.update(one.labels)
    findings = [
        *file_findings(end),
        *shape_findings(end, how.stage),
        *label_findings(tally),
        *drop_findings(tally),
    ]
    findings += [*note_findings(tally), *mask_findings(rows, voice), *told]
    return {"rows": rows, "findings": [finding.to_json() for finding in findings]}


def _rows(
    frame: Mapping[str, Any], encoder: Encoder, tokenizer: Any, how: PrepareSettings
) -> list[dict[str, Any]]:
    per = np.asarray(frame["per"])
    first = set((np.cumsum(per) - per).tolist())
    ids, lengths = encoder.encode(frame["texts"], [at not in first for at in range(len(frame["texts"]))])
    names = SIDES[frame["kind"]]
    made = []
    piece = at = 0
    for row, line in enumerate(frame["lines"]):
        sequences = []
        for name, count in zip(names, frame["per"][row * len(names) :], strict=False):
            tokens: list[dict[str, Any]] = []
            for number in range(piece, piece + count):
                size = int(lengths[number])
                mask = "learnt" if frame["learnt"][number] == "1" else "read"
                tokens += [{"id": int(one), "mask": mask} for one in ids[at : at + size]]
                at += size
            text = "".join(frame["texts"][piece : piece + count])
            piece += count
            if tokens:
                tokens[0]["mask"] = "read"  # nothing comes before it, so it is never predicted
            _name_tokens(tokens, tokenizer)
            for token in tokens[how.max_length :] if not how.split_long else ():
                token["mask"] = "cut"
            sequences.append({"name": name, "text": text, "tokens": tokens, "length": len(tokens)})
        made.append({"line": line, "row": frame["rows"][row], "sequences": sequences})
    return made


def _name_tokens(tokens: list[dict[str, Any]], tokenizer: Any) -> None:
    for token in tokens:
        token["text"] = tokenizer.decode([token["id"]], clean_up_tokenization_spaces=False)


def _pad(rows: Sequence[Mapping[str, Any]], how: PrepareSettings, tokenizer: Any) -> None:
    """Padding up to the longest sequence, on the right as the collator does."""
    sequences = [sequence for row in rows for sequence in row["sequences"]]
    longest = max((min(one["length"], how.max_length) for one in sequences), default=0)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    for one in sequences:
        missing = longest - one["length"]
        one["tokens"] += [
            {"id": pad, "mask": "padding", "text": tokenizer.decode([pad])} for _ in range(missing)
        ]


def mask_findings(rows: Sequence[Mapping[str, Any]], voice: Voice) -> list[Finding]:
    """What the tokens shown say about the whole: how much is learnt, BOS, ends, cut answers."""
    sequences = [sequence for row in rows for sequence in row["sequences"] if sequence["name"] != "prompt"]
    if not sequences:
        return []
    found: list[Finding] = []
    masks = [token["mask"] for one in sequences for token in one["tokens"]]
    learnt, read, cut = (masks.count(mask) for mask in ("learnt", "read", "cut"))
    share = learnt / max(1, learnt + read)
    level = "note" if learnt else "error"
    text = f"{share:.0%} of the tokens shown are learnt ({learnt:,} of {learnt + read:,})."
    if not learnt:
        text += " Nothing would be learnt: check the roles, or set stage.train_on: all."
    found.append(
        Finding("data_learnt_share", text, "note" if level == "note" else "error", "stage.train_on", share)
    )
    if cut:
        rows_cut = sum(any(token["mask"] == "cut" for token in one["tokens"]) for one in sequences)
        found.append(
            Finding(
                "data_answers_cut",
                f"{rows_cut} of the sequences shown are cut at max_length, {cut:,} tokens in all: their answers do not "
                "end, so stopping is not learnt from them.",
                "warning",
                "stage.max_length",
                cut,
            )
        )
    if voice.template and "generation" not in voice.template and any("<" in one["text"] for one in sequences):
        found.append(
            Finding(
                "data_template_without_marks",
                "The template does not mark what the assistant says; the mask is built from where each turn begins "
                "and ends, as shown.",
                "note",
                "model.template",
            )
        )
    if voice.bos and voice.adds_bos and any(not one["text"].startswith(voice.bos) for one in sequences):
        found.append(Finding("data_bos_missing", "Some sequences have no BOS.", "error", "model.template"))
    if voice.bos and any(one["text"].startswith(voice.bos + voice.bos) for one in sequences):
        found.append(
            Finding("data_bos_doubled", "Some sequences begin with two BOS.", "error", "model.template")
        )
    return found
