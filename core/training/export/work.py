"""One export from its record to the committed folder: refusals, room, the target's own work, and the rename."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peft  # noqa: F401 - the readers are forked when the libraries are in memory, and nothing else
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from core.export import target_module
from core.export.base import ExportSpec
from core.job.exports import refusals
from core.job.machine import this_machine
from core.job.spec import JobSpec
from core.runs.exports import Writer
from core.runs.folder import Run
from core.training.export.reader import Reader
from core.training.export.source import Source
from core.training.exporting import place_of, temporary_folder
from core.training.saving import commit_folder
from data.errors import FactoryError, refuse
from data.words import byte_size

SCRATCH = ".scratch"
"""Folder inside the temporary one for what is needed on the way; gone before the export is whole."""
SPARE = 64 << 20
"""Bytes that stay free on the disk beside an export."""
LIBRARIES = 700 << 20
"""Bytes of memory that torch, transformers and peft take by themselves."""


@dataclass
class Work:
    """What a target gets: the opened result, a folder to fill, a fresh process to read it back, and who listens."""

    run: Run
    job: JobSpec
    spec: Any
    source: Source
    folder: Path
    reader: Reader
    phase: Callable[[str, float], None]
    """Takes what is being done and the share of the whole behind it."""
    notes: list[str] = field(default_factory=list)
    """Sentences worth telling with the finished export."""

    def dtype(self, wanted: str) -> torch.dtype:
        """The precision to write: what was asked for, or the base's."""
        name = self.source.base_dtype() if wanted == "auto" else wanted
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]

    def merging_dtype(self, wanted: torch.dtype) -> torch.dtype:
        """The precision to add adapter and base in: fp32 where the memory allows, else the one that is written."""
        count = self.source.parameters()
        if _fits(4 * count):
            return torch.float32
        if wanted != torch.float32 and _fits(2 * count):
            self.notes.append("memory allowed for 16 bits only while merging, so weights were rounded twice")
            return wanted
        free = this_machine().memory_free
        raise refuse(
            "memory_too_small",
            f"The export needs about {byte_size(4 * count + LIBRARIES)} of memory for {count:,} weights, and "
            f"{byte_size(free)} are free; end other programs, or export with --dtype bf16.",
            needed=4 * count + LIBRARIES,
            free=free,
        )


def export(run: Run, writer: Writer) -> dict[str, Any]:
    """Make, verify and commit the export of a record; the facts that its record ends with.

    Raises FactoryError for what cannot be made or does not verify; nothing is left then but the record.
    """
    logging.disable_progress_bar()
    assert AutoModelForCausalLM and AutoTokenizer
    reader = Reader()
    try:
        return _export(run, writer, reader)
    finally:
        reader.close()


def _export(run: Run, writer: Writer, reader: Reader) -> dict[str, Any]:
    record = writer.record
    job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    target = target_module(record["target"])
    spec: ExportSpec = target.Spec.model_validate(record["spec"])
    temporary, final = temporary_folder(run, record), place_of(run, record)
    if final.exists():
        raise refuse(
            "target_exists", f"{str(final)!r} exists already and is not overwritten; choose another --out."
        )
    refuse_early(job, spec, None)
    writer.phase("opening the model", 0.05)
    shutil.rmtree(temporary, ignore_errors=True)
    source = Source(run, job, spec.checkpoint, record.get("base"), temporary / SCRATCH)
    refuse_early(job, spec, source)
    final.parent.mkdir(parents=True, exist_ok=True)
    _room(final.parent, target.size(spec, source.parameters(), _trained(source)))
    temporary.mkdir(exist_ok=True)
    work = Work(run, job, spec, source, temporary, reader, writer.phase)
    verified = target.make(work)
    shutil.rmtree(temporary / SCRATCH, ignore_errors=True)
    writer.phase("committing", 0.98)
    size = sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file())
    facts = {"run": run.id, "base": job.model.name, "export": record["spec"], "verified_by": verified}
    commit_folder(temporary, final, facts)
    return {"path": str(final), "bytes": size, "verified_by": verified, "notes": work.notes}


def refuse_early(job: JobSpec, spec: ExportSpec, source: Source | None) -> None:
    """Raise FactoryError when the target says that this run cannot become it."""
    model_type = str(source.config().model_type) if source is not None else None
    if findings := refusals(job, spec, model_type):
        raise FactoryError(findings)


def _trained(source: Source) -> int:
    if not source.is_adapter:
        return source.parameters()
    return sum(path.stat().st_size for path in source.folder.glob("*.safetensors")) // 4


def _room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise refuse(
            "disk_too_small",
            f"The export needs about {byte_size(needed)} and {str(folder)!r} has {byte_size(free)} free; make room, "
            "or choose another place with --out.",
            needed=needed,
            free=free,
        )


def _fits(weights: int) -> bool:
    return weights * 1.1 + LIBRARIES < this_machine().memory_free
