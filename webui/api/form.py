"""What a form's widgets make of a job's text, and what a text makes of the widgets. Fast: no file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from core.job.data import expand_data
from core.job.load import check_values, parse_leniently
from core.job.models import locate, parameter_count
from core.job.presets import Resolved, resolve
from core.job.reader import read_text
from core.job.schema import value_at
from core.job.spec import JobSpec
from core.stages import STAGES
from data.errors import FactoryError, Finding
from data.template import template_names
from webui.api.body import Body
from webui.api.here import Here, InHere
from webui.form import KINDS, NOTHING, Field, by_id, fields, row_forms, shown
from webui.form_text import as_typed, fill, kind_of, put, write
from webui.jail import placed
from webui.labels import label
from webui.shapes import misshaped
from webui.words import LANGUAGES, words

router = APIRouter(tags=["jobs"])


class FormQuestion(Body):
    """A text, and what widgets were changed to since it was written."""

    yaml: str
    changes: dict[str, Any] = {}
    """What widgets show now, by their ids (`train.epochs`, `stage.sft.max_length`)."""
    put: dict[str, Any] = {}
    """Fields of the job to set, by their dotted names, as the fix of a finding has them."""
    typed: dict[str, Any] = {}
    """What somebody has typed into widgets; `values` repeats it letter by letter where it says the same."""
    fill: bool = False
    """Whether to answer with what every widget shows for the new text."""


class FormAnswer(BaseModel):
    """The new text, and what is wrong with it as far as the spec alone can tell."""

    yaml: str
    readable: bool = True
    """False when the text is no YAML or no job at all; `findings` say why, and nothing else is known."""
    values: dict[str, Any] | None = None
    findings: list[dict[str, Any]]
    presets: dict[str, Any] = {}
    """What holds for fields that were left to their preset, by widget."""
    kinds: dict[str, str | None] = {}
    """The kinds of stage, method and engine that the text names."""
    data: dict[str, Any] | None = None
    """The data part in its long form, as POST /data/inspect takes it; null when no data is named."""
    rewarded: bool = False
    """Whether the stage learns from rewards."""
    set: list[str] = []
    """Widgets whose field the text mentions."""


@router.post("/jobs/form")
def form(question: FormQuestion, here: InHere) -> FormAnswer:
    """Change a job's text by what the widgets of a form show, or fill a form from a text."""
    if findings := [*misshaped(question.changes), *misshaped(question.typed, "typed")]:
        raise FactoryError(findings)
    try:
        return _answer(question, here)
    except FactoryError as error:
        return FormAnswer(
            yaml=question.yaml, readable=False, findings=[one.to_json() for one in error.findings]
        )


def _answer(question: FormQuestion, here: Here) -> FormAnswer:
    text = write(question.yaml, question.changes) if question.changes else question.yaml
    text = put(text, question.put) if question.put else text
    job, findings = _parsed(text)
    plain = _plain(text)
    kinds = {part: kind_of(plain, part) for part in KINDS}
    data = expand_data(plain.get("data"))
    rewarded = any(
        getattr(module, "REWARDED", False)
        for module in STAGES
        if module.Spec.model_fields["name"].default == kinds["stage"]
    )
    return FormAnswer(
        yaml=text,
        values=as_typed(fill(text), question.typed) if question.fill else None,
        findings=[one.to_json() for one in findings],
        presets=_presets(job, here) if job else {},
        kinds=kinds,
        data=data if isinstance(data, dict) and {"path", "sources", "registry"} & set(data) else None,
        rewarded=rewarded,
        set=_mentioned(plain, kinds),
    )


@router.get("/jobs/form")
def form_fields(language: str = "en") -> dict[str, Any]:
    """What a form is made of: stages with the rows they need, and the fields of lists of objects, in a language."""
    own = words(language if language in LANGUAGES else "en")
    return {
        "stages": {
            module.Spec.model_fields["name"].default: {
                "needs": list(module.NEEDS),
                "rewarded": getattr(module, "REWARDED", False),
            }
            for module in STAGES
        },
        "widgets": {field.id: field.widget for field in fields()},
        "values": {field.id: shown(field, NOTHING) for field in fields()},
        "templates": template_names(),
        "kinds": {field.id: list(field.choices) for field in fields() if field.key in KINDS},
        "lists": {
            field.id: [
                {
                    "kind": kind,
                    "title": own.get(f"kind.{field.id}.{kind}", kind),
                    "fields": [_described(one, own) for one in inner],
                }
                for kind, inner in row_forms(field.id).items()
            ]
            for field in fields()
            if field.widget == "rows"
        },
    }


def _described(field: Field, own: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": field.path[-1],
        "widget": field.widget,
        "choices": list(field.choices),
        "nullable": field.nullable,
        "label": own.get(f"field.{field.key}") or label(field),
        "help": own.get(f"help.{field.key}") or field.help,
        "facts": [one for one in (field.bounds, field.unit) if one],
        "value": shown(field, NOTHING),
        "required": field.default is None and not field.nullable,
        "long": "\n" in str(field.default or ""),
    }


def _parsed(text: str) -> tuple[JobSpec | None, list[Finding]]:
    try:
        return parse_leniently(text, origin="job.yaml")
    except FactoryError as error:
        if error.findings[0].code != "job_empty":
            raise
    try:
        return check_values({}, "job.yaml"), []
    except FactoryError as error:
        return None, list(error.findings)


def _plain(text: str) -> dict[str, Any]:
    """The text's plain values, names in their long form."""
    value = read_text(text, "job.yaml").value
    plain = dict(value) if isinstance(value, dict) else {}
    return {
        key: {"name": one} if key in (*KINDS, "model") and isinstance(one, str) else one
        for key, one in plain.items()
    }


def _mentioned(plain: dict[str, Any], kinds: dict[str, str | None]) -> list[str]:
    found = []
    for field in fields():
        there = field.kind is None or kinds.get(field.path[0]) == field.kind
        part = plain.get(field.path[0])
        short = len(field.path) == 2 and field.path[1] == "name" and isinstance(part, dict)
        if there and (short or value_at(plain, field.path) is not None):
            found.append(field.id)
    return found


def _presets(job: JobSpec, here: Here) -> dict[str, Any]:
    resolved = _resolved(job, here)
    held = resolved.job.model_dump(mode="json")
    return {
        field: value
        for field in resolved.defaults
        if field in by_id() and by_id()[field].nullable
        if (value := value_at(held, tuple(field.split(".")))) is not None
    }


def _resolved(job: JobSpec, here: Here) -> Resolved:
    try:
        model = placed(job, here.settings).model
        parameters = parameter_count(locate(model.name, here.home, revision=model.revision))
    except FactoryError:  # POST /jobs/check tells it; the preset of a small model stands meanwhile
        parameters = None
    return resolve(job, parameters=parameters, gpu=here.machine().has_gpu)
