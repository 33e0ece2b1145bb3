"""Exports as they are asked for: checked values, and what a run cannot become, told before any work."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from core.export import target_module, target_names
from core.export.base import HUB_TOKENS, ExportSpec, Facts
from core.job.base import Spec
from core.job.reading import Reading
from core.job.spec import AnyExport, JobSpec
from data.errors import FactoryError, Finding, refuse


class _Asked(Spec):
    export: list[AnyExport]


def checked_export(values: Mapping[str, Any]) -> ExportSpec:
    """An export from plain values: `name` and the settings of that target. Raises FactoryError with what is wrong."""
    name = values.get("name")
    if name not in target_names():
        text = f"There is no export {name!r}; choose one of: {', '.join(target_names())}."
        raise refuse("export_unknown", text, field="name", value=name)
    foreign = [key for key in values if key not in target_module(name).Spec.model_fields]
    if foreign:
        raise FactoryError([_foreign(key, name) for key in foreign])
    try:
        return _Asked.model_validate({"export": [dict(values)]}).export[0]
    except ValidationError as error:
        from core.job.words import findings_of

        found = findings_of(error, Reading({"export": [dict(values)]}), "the export")
        raise FactoryError([_bare(one) for one in found]) from error


def _foreign(key: str, name: str) -> Finding:
    able = [other for other in target_names() if key in target_module(other).Spec.model_fields]
    known = f"it is for {', '.join(able)}" if able else "no export has it"
    text = f"{key} is no setting of the export {name}: {known}; take it out."
    return Finding("export_setting", text, field=key, value=name)


def _bare(finding: Finding) -> Finding:
    """The finding about the export itself, not about the first of a list."""
    field = (finding.field or "").removeprefix("export[0].")
    message = finding.message.replace("export[0].", "")
    return dataclasses.replace(finding, field=field, message=message, fix=None)


def facts_of(job: JobSpec, model_type: str | None) -> Facts:
    """What the targets' refusals look at; `model_type` as config.json says it, None when it is not here."""
    return Facts(
        stage=job.stage.name,
        method=job.method.name,
        model_type=model_type,
        llama_cpp=importlib.util.find_spec("llama_cpp") is not None,
        hub_token=any(os.environ.get(name) for name in HUB_TOKENS),
    )


def refusals(job: JobSpec, spec: ExportSpec, model_type: str | None = None) -> list[Finding]:
    """Why the result of this job cannot become this export; empty when nothing speaks against it."""
    return list(target_module(spec.name).refusals(spec, facts_of(job, model_type)))


def findings(job: JobSpec, model_type: str | None) -> Iterator[Finding]:
    """What is wrong with the exports that a job asks for, each with its place in the list."""
    seen: set[str] = set()
    for place, spec in enumerate(job.export):
        field = f"export[{place}]"
        for one in refusals(job, spec, model_type):
            yield dataclasses.replace(one, field=f"{field}.{one.field}" if one.field else field)
        if spec.checkpoint is not None:
            text = (
                f"{field}.checkpoint {spec.checkpoint} is for `factory export`: exports of a job take the finished "
                "model; empty it."
            )
            yield Finding(
                "export_checkpoint_in_job", text, field=f"{field}.checkpoint", value=spec.checkpoint
            )
        key = spec.model_dump_json()
        if key in seen:
            text = f"{field} asks for the same export again; take it out."
            yield Finding("export_twice", text, "warning", field, spec.name)
        seen.add(key)


def first_sentence(kind: type[ExportSpec]) -> str:
    """What a target is, from its own words."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def export_bytes(job: JobSpec, weights: int, trained: int) -> int:
    """Bytes that the job's exports take beside the model."""
    return sum(target_module(spec.name).size(spec, weights, trained) for spec in job.export)
