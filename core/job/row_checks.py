"""What the rows seen say about the job: too long, one-sided, without answers, without the columns rewards ask for.

Without a tokenizer lengths are characters over four, and the sentences say `about`; `factory plan` counts tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from core.job.case import CHARACTERS, Case, find
from core.job.memory import ONLINE
from core.job.spec import JobSpec
from core.rewards import missing_columns
from data.errors import Finding

if TYPE_CHECKING:
    from core.job.plan import Counts

CUT_SHARE = 0.1
"""Share of cut answers from which a job is worth a warning: the ends are where stopping is learnt."""
TAUGHT_SHARE = 0.05
"""Share of tokens that teach below which most of the work is for nothing."""


def row_findings(case: Case) -> Iterator[Finding]:
    """All of them; none when no row could be read, which is a finding already."""
    if not case.seen["rows"]:
        return
    if not case.seen["whole"]:
        text = f"Only the first {case.seen['rows']:,} rows were looked at; factory check --full reads all."
        yield find("data_sampled", "note", "data", case.seen["rows"], text)
    yield from _labels(case)
    yield from _too_long(case)
    yield from _little_taught(case)
    yield from _columns(case)
    yield from _template(case)


def _rows(case: Case, count: int) -> str:
    """`3 of 200 rows`, or of the first 200 when there are more."""
    seen = case.seen
    return f"{count:,} of the {'' if seen['whole'] else 'first '}{seen['rows']:,} rows"


def _speak_for_all(case: Case) -> bool:
    """Whether the rows seen stand for the rest: of several files the first rows are only those of the first file."""
    return case.seen["whole"] or len(case.job.data.sources) < 2


def _labels(case: Case) -> Iterator[Finding]:
    labels = case.seen["labels"]
    if case.job.stage.name != "kto" or not labels or not _speak_for_all(case):
        return
    good, bad = labels.get("good", 0), labels.get("bad", 0)
    if not good or not bad:
        side, other = ("good", "bad") if good else ("bad", "good")
        text = (
            f"All of the {'' if case.seen['whole'] else 'first '}{good + bad:,} rows are labelled {side}: kto learns "
            f"from the difference, so give it {other} ones too, or train the good ones with stage sft."
        )
        yield find("kto_one_sided", "warning", "data", labels, text)
        return
    stage: Any = case.job.stage
    ratio = stage.desirable_weight * good / (stage.undesirable_weight * bad)
    if not 0.75 <= ratio <= 1.6:
        # Paper, eq. 8: weight x count of good to bad between 1:1 and 4:3.
        heavier, field = (good / bad, "undesirable_weight") if ratio > 1 else (bad / good, "desirable_weight")
        text = (
            f"{good:,} rows are good and {bad:,} bad: with weights {stage.desirable_weight:g} and "
            f"{stage.undesirable_weight:g} one side counts {max(ratio, 1 / ratio):.1f} times the other; "
            f"set stage.{field} to {heavier:.2g}."
        )
        yield Finding(
            "kto_unbalanced",
            text,
            "warning",
            f"stage.{field}",
            params={"good": good, "bad": bad},
            fix={f"stage.{field}": float(f"{heavier:.2g}")},
        )


def _too_long(case: Case) -> Iterator[Finding]:
    seen, stage = case.seen, case.job.stage
    online = stage.name in ONLINE
    field = "stage.max_prompt_length" if online else "stage.max_length"
    limit: int = getattr(stage, field.removeprefix("stage."))
    if seen["prompts_over"]:
        fate = "they are left out" if online else "nothing of their answers is left to learn"
        text = (
            f"{_rows(case, seen['prompts_over'])} have a prompt of more than {field} {limit:,} tokens (about): "
            f"{fate}; the longest is about {seen['longest_prompt'] // CHARACTERS:,}."
        )
        yield find("prompts_too_long", "warning", field, limit, text)
    if online or stage.name == "pretrain":
        return
    if seen["same_within"]:
        text = (
            f"{_rows(case, seen['same_within'])} hold two answers that begin alike for more than {field} {limit:,} "
            "tokens (about): cut there they are the same, and are left out."
        )
        yield find("pairs_same_when_cut", "warning", field, limit, text)
    if seen["over"] > CUT_SHARE * seen["rows"]:
        text = (
            f"{_rows(case, seen['over'])} are longer than {field} {limit:,} tokens (about) and are cut at the end, "
            "where stopping is learnt; raise it, or leave long rows out with data.too_long: drop."
        )
        yield find("answers_cut", "warning", field, limit, text)


def _little_taught(case: Case) -> Iterator[Finding]:
    seen, stage = case.seen, case.job.stage
    if stage.name != "sft" or getattr(stage, "train_on", "all") == "all" or not seen["characters"]:
        return
    share = seen["answers"] / seen["characters"]
    if share < TAUGHT_SHARE and "text" not in seen["columns"]:
        text = (
            f"About {share:.1%} of the text is answers, which is all that teaches: most of the work reads prompts; "
            "shorten them, or set stage.train_on: all."
        )
        yield find("little_taught", "warning", "stage.train_on", stage.train_on, text)  # type: ignore[attr-defined]


def _columns(case: Case) -> Iterator[Finding]:
    if case.job.stage.name in ONLINE and _speak_for_all(case):
        yield from missing_columns(case.job.rewards, case.seen["columns"])


def _template(case: Case) -> Iterator[Finding]:
    """A chat without a template to render it, seen from the model's files alone."""
    model, place = case.job.model, case.model
    if model.template is not None or place is None or place.folder is None or not case.seen["chats"]:
        return
    template = template_of(place.folder)
    if template is None:
        text = (
            f"{model.name} has no chat template and {_rows(case, case.seen['chats'])} are chats; "
            "set model.template, chatml for a model that has none."
        )
        yield find("template_missing", "error", "model.template", None, text, model__template="chatml")
    elif (end := settings_of(place.folder).get("eos_token")) and not _ends(template, _text(end)):
        text = (
            f"The chat template of {model.name} never writes the end mark {_text(end)}; it is added behind every "
            "answer, so that stopping is learnt."
        )
        yield find("template_without_end", "note", "model.template", None, text)


def counted_findings(job: JobSpec, counts: Counts) -> Iterator[Finding]:
    """What the counted tokens say: little that teaches, many answers cut."""
    share = counts.trained_tokens / max(1, counts.tokens)
    if job.stage.name == "sft" and share < TAUGHT_SHARE:
        text = (
            f"{counts.trained_tokens:,} of {counts.tokens:,} tokens teach ({share:.1%}): most of the work reads "
            "prompts; shorten them, or set stage.train_on: all."
        )
        yield find("little_taught", "warning", "stage.train_on", share, text)
    kept = counts.read - counts.dropped
    if hasattr(job.stage, "max_length") and job.stage.name != "pretrain" and counts.cut > CUT_SHARE * kept:
        text = (
            f"{counts.cut:,} of {kept:,} rows are cut at stage.max_length {job.stage.max_length:,} (the longest has "
            f"{counts.longest:,} tokens), and with their ends stopping is not learnt; raise it, or leave long rows out "
            "with data.too_long: drop."
        )
        yield find("answers_cut", "warning", "stage.max_length", job.stage.max_length, text)


def template_of(folder: Any) -> str | None:
    """The chat template among a model's files, or None."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return str(file.read_text("utf-8", "replace"))
    told = settings_of(folder).get("chat_template")
    if isinstance(told, list):
        told = next((one.get("template") for one in told if isinstance(one, dict)), None)
    return told if isinstance(told, str) and told else None


def settings_of(folder: Any) -> dict[str, Any]:
    """tokenizer_config.json as plain JSON; empty when it is not there or broken, which loading the model tells."""
    try:
        told = json.loads((folder / "tokenizer_config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _text(token: Any) -> str:
    return str(token.get("content") if isinstance(token, dict) else token)


def _ends(template: str, end: str) -> bool:
    return end in template or "eos_token" in template
