"""Routes about data files: upload, list, delete, and what is in them. Every file is parsed in a limited child."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from core.job.counting import ask_tokenizer
from core.job.load import parse_job
from core.job.spec import JobSpec
from core.stages import STAGES, stage_module
from data.detect import STAGE_NEEDS
from data.errors import refuse
from data.inspect import inspect as inspect_file
from data.inspect import rows as read_rows
from data.look import look
from webui import uploads
from webui.api.body import Body
from webui.api.here import Here, InHere, Json
from webui.api.run_answers import Deleted
from webui.api.runs import as_json
from webui.api.stock_answers import DataFiles, Inspected, Previewed, RowsAnswer, Uploaded
from webui.jail import placed
from webui.jobs import one_child

router = APIRouter(tags=["data"])
StageName = Literal["pretrain", "sft", "reward", "dpo", "kto", "orpo", "ppo", "grpo", "rloo"]
FileName = Annotated[str, Path(min_length=1, max_length=255, description="A file of the data folder.")]


class InspectBody(Body):
    """Data as a job's `data`, and for which stage and model to look at it."""

    data: str | dict[str, Any] | list[Any]
    stage: StageName | None = None
    model: str | None = Field(None, max_length=4096)
    """With a model, lengths are tokens and the answer takes seconds; without, characters."""
    template: str | None = Field(None, max_length=4096)
    max_length: int = Field(2048, ge=8, le=10_000_000)


class RowsBody(Body):
    """Data as a job's `data`, and how many rows."""

    data: str | dict[str, Any] | list[Any]
    stage: StageName | None = None
    count: int = Field(5, ge=1, le=100)


class PreviewBody(Body):
    """Data as a job's `data`, and how training would read it."""

    data: str | dict[str, Any] | list[Any]
    model: str = Field(min_length=1, max_length=4096)
    stage: StageName = "sft"
    count: int = Field(3, ge=1, le=50)
    template: str | None = Field(None, max_length=4096)
    max_length: int = Field(2048, ge=8, le=10_000_000)
    train_on: Literal["assistant", "last_assistant", "all"] | None = None


@router.get("/data", response_model=DataFiles)
def files(here: InHere) -> Json:
    """The files of the data folder, newest first, and the samples that come with Factory."""
    return {
        "files": [one.to_json() for one in uploads.stored(uploads.folder_of(here.settings))],
        "samples": [
            one.to_json() for one in sorted(uploads.stored(uploads.SAMPLES), key=lambda one: one.path.name)
        ],
        "folder": str(uploads.folder_of(here.settings)),
        "used": uploads.used_bytes(here.settings),
        "quota": here.settings.quota_bytes,
        "upload_bytes": here.settings.upload_bytes,
    }


@router.post(
    "/data",
    response_model=Uploaded,
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(
    here: InHere,
    request: Request,
    name: Annotated[str, Query(min_length=1, max_length=255, description="The file's name.")],
    replace: Annotated[bool, Query(description="Put it in the place of a file of that name.")] = False,
) -> Response:
    """Take in a file: its bytes are the body, as they are. It is there whole, or not at all."""
    from starlette.concurrency import run_in_threadpool

    file = await uploads.take_in(here.settings, name, request.stream(), replace=replace)
    seen = await run_in_threadpool(look, {"path": str(file.path)}, (), None)
    plain = seen.to_plain()
    answer = as_json({"file": file.to_json(), "report": plain, "findings": plain["findings"]})
    answer.status_code = 201
    return answer


@router.delete("/data/{name}", response_model=Deleted)
def delete(here: InHere, name: FileName) -> Json:
    """Move a file to the trash of the home. Refused while a live run reads it."""
    file, trash = uploads.delete(here.settings, name)
    return {"id": file.path.name, "bytes": file.bytes, "trash": str(trash)}


@router.post("/data/inspect", response_model=Inspected)
def inspect(here: InHere, body: InspectBody) -> Response:
    """What data holds: format, columns, rows kept and dropped with reasons, lengths, labels, stages it fits."""
    job = _job(here, body.data, body.stage, body.model, body.template)
    data, needs = job.data_settings, _needs(body.stage)
    if body.model is None:
        return as_json(inspect_file(data, needs, body.stage))
    request = {"do": "inspect", "data": data, "stage": body.stage, "max_length": body.max_length}
    with one_child():
        return as_json(ask_tokenizer(request, here.home, job.model.name, job.model.template))


@router.post("/data/rows", response_model=RowsAnswer)
def rows(here: InHere, body: RowsBody) -> Response:
    """The first rows as every stage speaks of them."""
    job = _job(here, body.data, body.stage, None, None)
    return as_json({"rows": list(read_rows(job.data_settings, _needs(body.stage), body.stage, body.count))})


@router.post("/data/preview", response_model=Previewed)
def preview(here: InHere, body: PreviewBody) -> Response:
    """The first rows token by token as training gets them, each marked learnt, read, cut or padding."""
    job = _job(here, body.data, body.stage, body.model, body.template)
    request = {
        "do": "preview",
        "data": job.data_settings,
        "stage": body.stage,
        "count": body.count,
        "max_length": body.max_length,
        "train_on": body.train_on or ("all" if body.stage == "pretrain" else "assistant"),
    }
    with one_child():
        return as_json(ask_tokenizer(request, here.home, job.model.name, job.model.template))


def _job(here: Here, data: Any, stage: str | None, model: str | None, template: str | None) -> JobSpec:
    """A job around the data, so that it is checked and its paths are judged as when it is trained on."""
    job: Json = {
        "model": {"name": model or "smollm2-135m", "template": template},
        "stage": stage or "sft",
        "data": data,
    }
    try:
        text = json.dumps(job, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise refuse(
            "data_not_plain", f"The data settings are no plain JSON ({error}).", field="data"
        ) from error
    return placed(parse_job(text, origin="the request"), here.settings)


def _needs(stage: str | None) -> tuple[str, ...]:
    if stage is None:
        return ()
    known = {module.Spec.model_fields["name"].default for module in STAGES}
    return tuple(stage_module(stage).NEEDS) if stage in known else STAGE_NEEDS.get(stage, ())
