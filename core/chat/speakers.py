"""Who can answer: a run's model, one of its checkpoints, the base it came from, any model. Reads small files only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.job.models import ADAPTER_FILES, EMBEDDED, locate
from core.job.spec import JobSpec
from core.methods.adapter import CHANGING_BASE
from core.runs import checkpoints
from core.runs.folder import ID, Run, find_run, list_runs
from core.runs.weights import weights_of, whole_steps
from core.stages import stage_module
from data.errors import FactoryError, refuse
from data.userpath import user_path

ADAPTER_START = "adapter_start"
"""Folder of a run with its adapter as it began, where beginning changed the base (core.training.saving)."""

MOST_LISTED = 200
"""Runs in a list to choose from; older ones are named by their id."""


@dataclass(frozen=True)
class Speaker:
    """Somebody who answers. Speakers with the same `weights` share them in memory."""

    key: str
    """`run:ID`, `run:ID@STEP` or `model:NAME`; what REST calls it by."""
    title: str
    name: str
    """The model whose weights are held, as `model.name` of a job would say."""
    revision: str | None = None
    adapters: tuple[str, ...] = ()
    """Folders of adapters to wear on top, all at once."""
    start: str | None = None
    """Folder of the adapter that the last one has to be taken relative to."""
    tokenizer: str | None = None
    """Folder of tokenizer and template, when they are not those beside the weights."""
    template: str | None = None
    base: str | None = None
    """Key under which the model it came from is known; None for who came from nobody."""

    @property
    def weights(self) -> str:
        """What lies in memory for it: two with the same are one model with adapters on and off."""
        return f"{self.name}@{self.revision}" if self.revision else self.name

    def to_json(self) -> dict[str, Any]:
        """For the worker."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Speaker:
        """The inverse of `to_json`."""
        return cls(**{**plain, "adapters": tuple(plain["adapters"])})


def find_speaker(home: Path, words: str, *, checkpoint: int | None = None) -> Speaker:
    """Who is meant by a run's id (or a part of it), a model's name, or a folder.

    Raises FactoryError when nobody is, or when what is meant cannot talk.
    """
    path = user_path(words)
    if (path / "job.json").is_file():
        return of_run(Run(path.resolve()), checkpoint)
    if words not in EMBEDDED and not path.is_dir() and ID.fullmatch(words):
        try:
            return of_run(find_run(home, words), checkpoint)
        except FactoryError as problem:
            if problem.findings[0].code != "run_not_found":
                raise
            text = (
                f"There is no run {words!r} in {home}, and no model or folder of that name; `factory runs` lists the "
                f"runs, and a model is a folder, a hub id (org/name) or {', '.join(EMBEDDED)}."
            )
            raise refuse("speaker_not_found", text, value=words) from None
    if checkpoint is not None:
        text = f"Only a run has checkpoints, and {words!r} is a model; leave --checkpoint out."
        raise refuse("checkpoint_of_a_model", text, value=words)
    return of_model(words, home)


def by_key(home: Path, key: str) -> Speaker:
    """The speaker of a key. Raises FactoryError."""
    kind, _, rest = key.partition(":")
    if kind == "run":
        id, _, step = rest.partition("@")
        base = step == "base"
        number = int(step) if step.isascii() and step.isdigit() else None
        if step and number is None and not base:
            raise refuse(
                "speaker_unknown",
                f"{key[:80]!r} names no checkpoint; take a key of the list.",
                value=key[:80],
            )
        run = find_run(home, id)
        return base_of_run(run) if base else of_run(run, number)
    if kind == "model" and rest:
        return of_model(rest, home)
    raise refuse(
        "speaker_unknown", f"{key[:80]!r} is no run and no model; take a key of the list.", value=key[:80]
    )


def of_model(name: str, home: Path) -> Speaker:
    """A model by its name; a folder with an adapter speaks through the base it names. Raises FactoryError."""
    folder = user_path(name)
    if (folder / ADAPTER_FILES[0]).is_file() and not (folder / "config.json").is_file():
        return _of_adapter(folder.resolve())
    locate(name, home)
    # An absolute path: the worker runs elsewhere.
    name = str(folder.resolve()) if folder.is_dir() and name not in EMBEDDED else name
    return Speaker(f"model:{name}", Path(name).name, name)


def _of_adapter(folder: Path) -> Speaker:
    try:
        base = json.loads((folder / ADAPTER_FILES[0]).read_text("utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        base = None
    if not isinstance(base, str) or not base:
        text = f"The adapter in {str(folder)!r} does not say which model it belongs to; copy it again."
        raise refuse("base_unknown", text, value=str(folder))
    tokenizer = str(folder) if (folder / "tokenizer.json").is_file() else None
    key = f"model:{folder}"
    return Speaker(key, folder.name, base, None, (str(folder),), tokenizer=tokenizer, base=f"model:{base}")


def of_run(run: Run, checkpoint: int | None = None) -> Speaker:
    """What a run made, or one of its checkpoints. Raises FactoryError when there is none, or it gives scores only."""
    job = _job(run)
    _may_talk(run, job)
    folder = weights_of(run, checkpoint)
    at = "" if checkpoint is None else f"@{checkpoint}"
    title = job.name or run.id
    made = Speaker(
        f"run:{run.id}{at}",
        f"{title} · step {checkpoint}" if checkpoint is not None else title,
        job.model.name,
        job.model.revision,
        tokenizer=str(folder),
        base=f"run:{run.id}@base",
    )
    if not (folder / ADAPTER_FILES[0]).is_file():
        return replace(made, name=str(folder), revision=None)
    changed = checkpoint is not None and getattr(job.method, "init", None) in CHANGING_BASE
    start = run.path / ADAPTER_START
    return replace(made, adapters=(str(folder),), start=str(start) if changed and start.is_dir() else None)


def base_of_run(run: Run) -> Speaker:
    """The model a run began with, in the words of the run: its template, and the adapter it went on with."""
    job = _job(run)
    _may_talk(run, job)
    adapters = (job.model.adapter,) if job.model.adapter else ()
    has = run.model if (run.model / "tokenizer_config.json").is_file() else None
    return Speaker(
        f"run:{run.id}@base",
        f"{Path(job.model.name).name} (before)",
        job.model.name,
        job.model.revision,
        adapters,
        tokenizer=str(has) if has else None,
        template=None if has else job.model.template,
    )


def base_of(home: Path, speaker: Speaker) -> Speaker | None:
    """The model somebody came from, to be compared with; None for who came from nobody."""
    return by_key(home, speaker.base) if speaker.base else None


def _job(run: Run) -> JobSpec:
    try:
        return JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        first = str(problem).splitlines()[0][:120]
        text = f"job.json of run {run.id} cannot be read ({first}); restore it from job.yaml."
        raise refuse("job_unreadable", text, value=run.id) from problem


def _may_talk(run: Run, job: JobSpec) -> None:
    if stage_module(job.stage.name).TASK != "CAUSAL_LM":
        base = job.model.name
        text = (
            f"Run {run.id} trained a reward model, which gives scores and no answers; name its base {base!r}."
        )
        raise refuse("speaker_is_a_judge", text, value=run.id)


def list_speakers(home: Path) -> list[dict[str, Any]]:
    """Who can be talked to, the newest MOST_LISTED runs, then models: key, title, kind, base, checkpoints."""
    return [*islice(_runs(home), MOST_LISTED), *_models(home)]


def _runs(home: Path) -> Iterator[dict[str, Any]]:
    for run in reversed(list_runs(home)):
        try:
            job = _job(run)
            _may_talk(run, job)
        except FactoryError:
            continue  # a list shows what works; opening the run tells what does not
        steps = whole_steps(run)
        done = checkpoints.is_complete(run.model)
        if not done and not steps:
            continue
        yield {
            "key": f"run:{run.id}" if done else f"run:{run.id}@{steps[-1]}",
            "title": job.name or run.id,
            "kind": "run",
            "run": run.id,
            "finished": done,
            "checkpoints": steps,
            "base": f"run:{run.id}@base",
            "base_title": Path(job.model.name).name,
            "about": f"{job.stage.name} · {job.method.name} · {Path(job.model.name).name}",
        }


def _models(home: Path) -> Iterator[dict[str, Any]]:
    folders = sorted(path for path in (home / "models").glob("*") if (path / "config.json").is_file())
    names = [*EMBEDDED, *(str(path) for path in folders if path.name not in EMBEDDED)]
    for name in names:
        try:
            locate(name, home)
        except FactoryError:
            continue  # an embedded model whose package is not installed
        told = {"key": f"model:{name}", "title": Path(name).name, "kind": "model", "about": "model"}
        yield {**told, "run": None, "finished": True, "checkpoints": [], "base": None, "base_title": None}
