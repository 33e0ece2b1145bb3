"""Routes about what a run became for others: start an export, watch it, take it back, download it; the result card."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, StreamingResponse

from core.export import target_module
from core.job.exports import checked_export, first_sentence, refusals
from core.job.spec import JobSpec
from core.runs import exports
from core.runs.folder import Run
from core.runs.result import result_card
from core.runs.storage import read_json
from data.errors import FactoryError, refuse
from webui.api.body import Body
from webui.api.here import Json, TheRun
from webui.api.run_answers import ExportAnswer, ExportRemoved, Exports, ResultAnswer

router = APIRouter(tags=["exports"])
BLOCK = 1 << 20


class ExportBody(Body):
    """What to export: the target and its settings, as in a job's `export` list."""

    name: str
    """adapter, merged, gguf, ollama, hub or card."""
    checkpoint: int | None = None
    dtype: str | None = None
    shard_size: float | None = None
    quant: str | None = None
    repo: str | None = None
    content: str | None = None
    private: bool | None = None


def _export(
    run: TheRun,
    name: Annotated[str, InPath(pattern=f"^{exports.NAME.pattern}$", description="An export's name.")],
) -> exports.Export:
    found = exports.find_export(run, name)
    if found is None:
        raise refuse("export_not_found", f"Run {run.id} has no export {name[:80]!r}.", value=name[:80])
    return found


@router.get("/runs/{id}/exports", response_model=Exports)
def list_all(run: TheRun) -> Json:
    """The exports of a run, oldest first, and the targets it can become, with the reason where it cannot."""
    return {"exports": [one.to_json() for one in exports.list_exports(run)], "targets": _targets(run)}


@router.post("/runs/{id}/exports", response_model=ExportAnswer, status_code=201)
def start(run: TheRun, body: ExportBody) -> Json:
    """Begin an export in a process of its own; its record tells how far it is."""
    given = {key: value for key, value in body.model_dump().items() if value is not None}
    spec = checked_export(given)
    if found := refusals(_job(run), spec):
        raise FactoryError(found)
    begun, child = exports.start(run, spec.model_dump(mode="json"))
    threading.Thread(target=child.wait, daemon=True).start()  # somebody has to collect it when it ends
    return {"export": begun.to_json()}


@router.get("/runs/{id}/exports/{name}", response_model=ExportAnswer)
def show(run: TheRun, name: str) -> Json:
    """One export: its state, how far it is, what was verified, or why it failed."""
    return {"export": _export(run, name).to_json()}


@router.post("/runs/{id}/exports/{name}/cancel", response_model=ExportAnswer)
def cancel(run: TheRun, name: str) -> Json:
    """Take an export back that is being made."""
    return {"export": exports.cancel(_export(run, name)).to_json()}


@router.delete("/runs/{id}/exports/{name}", response_model=ExportRemoved)
def remove(run: TheRun, name: str) -> Json:
    """Delete an export that is over."""
    return {"name": name, "bytes": exports.remove(_export(run, name))}


@router.get(
    "/runs/{id}/exports/{name}/download",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The file, or a tar of all."}
    },
)
def download(
    run: TheRun,
    name: str,
    file: Annotated[
        str | None, Query(max_length=200, description="One file of it; without, all as a tar.")
    ] = None,
) -> Response:
    """The finished export to keep: one file, or the folder as a tar archive, streamed."""
    export = _export(run, name)
    folder = run.exports / export.name
    if export.state != "done" or export.path != folder or folder.is_symlink() or not folder.is_dir():
        text = f"Export {name} of run {run.id} cannot be downloaded: it is {export.state}, or lies elsewhere."
        raise refuse("file_not_found", text, value=name)
    files = _files(folder)
    if file is None:
        head = {
            "content-disposition": f'attachment; filename="{run.id}-{name}.tar"',
            "content-length": str(_tar_size(files)),
        }
        return StreamingResponse(_tar(files, name), media_type="application/x-tar", headers=head)
    if file not in files:
        raise refuse("file_not_found", f"Export {name} of run {run.id} has no file {file!r}.", value=file)
    return FileResponse(
        files[file],
        media_type="application/octet-stream",
        filename=f"{run.id}-{Path(file).name}",
        content_disposition_type="attachment",
    )


@router.get("/runs/{id}/result", response_model=ResultAnswer)
def result(run: TheRun) -> Json:
    """The result card of a finished run: base beside tuned, in numbers and answers, and what to do next."""
    card = result_card(run)
    return {"result": None if card is None else card.model_dump(mode="json")}


def _job(run: Run) -> JobSpec:
    try:
        return JobSpec.model_validate(read_json(run.job_json))
    except (OSError, ValueError) as error:
        text = f"job.json of run {run.id} is missing or damaged, so nothing can be exported from it."
        raise refuse("job_damaged", text, value=run.id) from error


def _targets(run: Run) -> list[Json]:
    from core.export import target_names

    try:
        job = _job(run)
    except FactoryError:
        return []
    told = []
    for name in target_names():
        spec = target_module(name).Spec
        found = refusals(job, spec())
        told.append(
            {"name": name, "about": first_sentence(spec), "refused": found[0].message if found else None}
        )
    return told


def _files(folder: Path) -> dict[str, Path]:
    """The files of an export by their names in it; links are none of them."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _tar_size(files: dict[str, Path]) -> int:
    return sum(512 + -(-path.stat().st_size // 512) * 512 for path in files.values()) + 1024


def _tar(files: dict[str, Path], name: str) -> Iterator[bytes]:
    """A tar archive, block by block: weights are gigabytes and are never held whole."""
    for inner, path in files.items():
        size = path.stat().st_size
        about: Any = tarfile.TarInfo(f"{name}/{inner}")
        about.size, about.mtime, about.mode = size, int(path.stat().st_mtime), 0o644
        yield about.tobuf(tarfile.GNU_FORMAT)
        left = size
        with path.open("rb") as content:
            while left and (block := content.read(min(BLOCK, left))):
                left -= len(block)
                yield block
        yield b"\0" * (left + -size % 512)
    yield b"\0" * 1024
