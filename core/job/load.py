"""A YAML or JSON text, with overrides on top, to a checked job. All errors at once, in our own words."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.job.data import expand_data
from core.job.reader import read_text
from core.job.reading import MAX_BYTES, FieldPath, Reading, dotted
from core.job.spec import JobSpec
from data.errors import FactoryError, Finding, refuse

_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def load_job(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """The checked job in a file, with `field=value` overrides on top.

    Raises FactoryError with everything that is wrong: a missing or unreadable file, broken text, unknown
    fields, wrong values; each with the field, the value, what is allowed, and the line and column.
    """
    return parse_job(read_job_file(path), overrides, origin=path.name)


def read_job_file(path: Path) -> str:
    """The text of a job file, as it was written. Raises FactoryError when it is missing or no text."""
    if not path.exists():
        raise _missing(path)
    if not path.is_file():
        raise refuse(
            "job_not_a_file", f"{path} is not a file; give the job's YAML or JSON file.", value=str(path)
        )
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refuse(
            "job_unreadable", f"{path} cannot be read: {error.strerror}.", value=str(path)
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A text cut at the limit may end inside a character; then its size is the complaint.
        if len(content) > MAX_BYTES:
            return content.decode("utf-8", "replace")
        line = content.count(b"\n", 0, error.start) + 1
        raise refuse(
            "job_not_utf8", f"{path} is not UTF-8 text (line {line}); save it as UTF-8.", value=str(path)
        ) from None


def _missing(path: Path) -> FactoryError:
    near = sorted(path.parent.glob("*")) if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, [one.name for one in near], n=1)
    advice = f"did you mean {path.parent / close[0]}?" if close else "`factory new` writes one."
    return refuse("job_not_found", f"There is no job file {path}; {advice}", value=str(path))


def parse_job(text: str, overrides: Sequence[str] = (), origin: str = "the job") -> JobSpec:
    """The checked job in a YAML or JSON text, with `field=value` overrides on top.

    `origin` is what sentences call the text. Raises FactoryError with everything that is wrong at once.
    """
    job, findings = parse_leniently(text, overrides, origin)
    if findings or job is None:
        raise FactoryError(findings)
    return job


def parse_leniently(
    text: str, overrides: Sequence[str] = (), origin: str = "the job"
) -> tuple[JobSpec | None, list[Finding]]:
    """The job as far as it can be understood, wrong fields left out, and all that is wrong with the text.

    The job is None when not even that much is left. Raises FactoryError for a text that is no job at all.
    """
    reading = read_text(text, origin)
    if reading.value is None and not reading.findings:
        raise refuse("job_empty", f"{origin} is empty; a job needs model, data and stage.")
    if not isinstance(reading.value, dict):
        no_fields = Finding(
            "job_not_a_mapping", f"{origin} must hold fields such as `stage: sft`, one a line."
        )
        raise FactoryError([*reading.findings, no_fields])
    for override in overrides:
        _override(reading, override)
    # `train:` with nothing under it says nothing, as in a job whose settings are all commented out.
    reading.value = {key: value for key, value in reading.value.items() if value is not None}
    job, findings = _validate(reading, origin)
    if job is None:
        for finding in findings:
            _leave_out(reading.value, finding.field or "")
        job, _ = _validate(reading, origin)
    return job, _in_order(findings)


def check_values(values: dict[str, Any], origin: str = "the job") -> JobSpec:
    """The checked job of plain values, such as a form's. Raises FactoryError with all that is wrong."""
    job, findings = _validate(Reading(values), origin)
    if job is None:
        raise FactoryError(findings)
    return job


def _validate(reading: Reading, origin: str) -> tuple[JobSpec | None, list[Finding]]:
    try:
        return JobSpec.model_validate(reading.value), reading.findings
    except ValidationError as error:
        from core.job.words import findings_of  # a job in order needs no words for what is wrong

        return None, [*reading.findings, *findings_of(error, reading, origin)]


def _leave_out(values: Any, field: str) -> None:
    """Take a dotted field out of plain values, if it is there; a list that holds it goes as a whole."""
    head, _, rest = field.partition("[")[0].partition(".")
    if not isinstance(values, dict) or head not in values:
        return
    if rest and isinstance(values[head], dict):
        _leave_out(values[head], rest)
    else:
        del values[head]


def dump_job(job: JobSpec) -> str:
    """The whole job as JSON, nulls kept, so that `parse_job(dump_job(job)) == job`."""
    return job.model_dump_json(indent=2) + "\n"


def _in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings from the top of the text to its end; those without a place come first."""
    return sorted(findings, key=lambda one: (one.params.get("line", 0), one.params.get("column", 0)))


def _override(reading: Reading, override: str) -> None:
    """Set one `field=value` in a reading; the value is read like a YAML value."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not _DOTTED.fullmatch(name):
        raise refuse(
            "bad_override",
            f"The override {override!r} must be field=value, such as train.learning_rate=1e-4.",
            value=override,
        )
    value = read_text(text, f"-o {name}")
    path: FieldPath = tuple(name.split("."))
    # What is set here replaces what the text said about the field, its faults included.
    reading.findings[:] = [one for one in reading.findings if one.field != dotted(path)]
    reading.findings += [dataclasses.replace(one, field=dotted(path)) for one in value.findings]
    reading.overridden.add(path)
    _set(reading.value, path, value.value)


def _set(values: dict[str, Any], path: FieldPath, value: Any) -> None:
    head, *rest = path
    if not rest:
        values[str(head)] = value
        return
    top, last = str(head), str(rest[-1])
    inner = values[top] = _long(top, values.get(top))
    for part in rest[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else {}
    if isinstance(inner, dict):
        inner[last] = value


def _long(top: str, value: Any) -> Any:
    """The long form of a part about to get a setting: a shorthand expanded, an absent part as its default."""
    if value is None:
        field = JobSpec.model_fields.get(top)
        default = field.get_default(call_default_factory=True) if field else None
        name = getattr(default, "name", None)
        return {"name": name} if isinstance(name, str) else {}
    if top == "data":
        return expand_data(value)
    return {"name": value} if isinstance(value, str) else value
