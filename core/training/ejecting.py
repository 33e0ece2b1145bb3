"""A job as a plain TRL script: `python -m core.training.ejecting HOME FOLDER < job.json`, JSON on stdout.

Started by `factory eject`. The rows are written as the token ids that training sees, which the trainers of trl 1.12
take as they are; so the script gives the same losses, whatever its own tokenising would have made of the texts.
Exit code 2 and {"findings": [...]} when the job cannot be ejected.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from core.job.schedule import schedule
from core.job.spec import JobSpec
from core.runs.storage import half_made, not_written, refuse_target
from core.training import eject_rewards, eject_script
from core.training.answering import answer
from core.training.context import Context
from core.training.faults import explain, is_disk_full
from core.training.feedback import split_answers
from core.training.model import load_tokenizer, model_folder
from core.training.rows import rows_for
from data.errors import FactoryError

PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def eject(job: JobSpec, home: Path, folder: Path) -> dict[str, Any]:
    """Write train.py, requirements.txt and the rows into a new folder; the files with what each is.

    It gets its name when it is whole. Raises FactoryError for what no short script can do, and for a folder that cannot
    be written.
    """
    eject_script.refuse_what_cannot(job)
    tokenizer = load_tokenizer(job.model, home)
    prepared = rows_for(job, home, tokenizer, lambda event: None)
    times = schedule(job.train, prepared.rows * job.stage.repeats)
    context = _context(job, home, tokenizer, times)
    temporary = half_made(folder)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        told = _write(job, context, prepared, home, temporary)
        temporary.rename(folder)
    except OSError as error:
        raise error if is_disk_full(error, folder.parent) else not_written(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return told


def _write(job: JobSpec, context: Context, prepared: Any, home: Path, folder: Path) -> dict[str, Any]:
    """Write the files into a folder that is there."""
    files: dict[str, str] = {}
    for part, path in (("train", prepared.train), ("eval", prepared.eval)):
        if path is not None:
            rows = ready_rows(job, Dataset.from_file(str(path)))
            count = _write_rows(folder / f"{part}.jsonl", rows)
            files[f"{part}.jsonl"] = f"{count:,} rows as token ids"
    text = eject_script.script(
        job, context, model_folder(job.model, home), held_out=prepared.eval is not None
    )
    (folder / "train.py").write_text(text, "utf-8")
    if rewards := eject_script.rewards_of(job):
        (folder / "rewards.py").write_text(eject_rewards.rewards_text(rewards), "utf-8")
        files["rewards.py"] = ", ".join(reward.title for reward in rewards)
    names = [*PACKAGES, *(["bitsandbytes"] if job.method.name == "qlora" else [])]
    names += eject_rewards.packages(rewards)
    (folder / "requirements.txt").write_text(
        "".join(f"{name}=={version(name).split('+')[0]}\n" for name in names), "utf-8"
    )
    return {
        "files": {
            "train.py": f"{len(text.splitlines())} lines",
            "requirements.txt": "exact versions",
            **files,
        }
    }


def _context(job: JobSpec, home: Path, tokenizer: Any, times: Any) -> Context:
    return Context(
        job=job,
        output_dir=Path("checkpoints"),
        model=None,
        tokenizer=tokenizer,
        train_rows=None,
        eval_rows=None,
        schedule=times,
        callbacks=[],
        gpu=torch.cuda.is_available(),
        home=home,
        emit=lambda finding: None,
        show=lambda *told: None,
    )


def ready_rows(job: JobSpec, rows: Dataset) -> Dataset:
    """The rows in the shape in which trl's trainer wants them when it does not tokenise."""
    from core.training.pairs import whole_answers

    if job.stage.name == "kto":
        assert job.train.batch_size is not None
        return split_answers(rows, batch_size=job.train.batch_size, seed=job.train.seed)
    if job.stage.name == "reward":
        whole = whole_answers([dict(row) for row in rows])
        kept = ["chosen_ids", "rejected_ids", *(["margin"] if getattr(job.stage, "margin", False) else [])]
        return Dataset.from_list([{name: row[name] for name in kept} for row in whole])
    return rows


def _write_rows(path: Path, rows: Dataset) -> int:
    with path.open(
        "w", encoding="utf-8"
    ) as file:  # free columns stay text: as JSON, a date would become a time
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return len(rows)


def main() -> int:
    """Read the job from stdin, write what was written to stdout."""
    home, folder = Path(sys.argv[1]), Path(sys.argv[2])

    def ended(number: int, frame: Any) -> None:
        # Here and now, not by an exception: some library catches all of them while it is imported.
        shutil.rmtree(half_made(folder), ignore_errors=True)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, ended)

    def ejected(text: str) -> dict[str, Any]:
        refuse_target(folder)
        try:
            return eject(JobSpec.model_validate_json(text), home, folder)
        except Exception as problem:
            raise FactoryError(explain(problem, home)) from problem

    return answer(ejected)


if __name__ == "__main__":
    sys.exit(main())
