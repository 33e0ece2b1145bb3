"""The run folder: its names, its making, and how a run is found. Knows no state and no process.

HOME/runs/<id>/ holds job.yaml (as written), job.json (resolved), plan.json, attempt.json, state.json,
events.jsonl, log.txt, checkpoints/, model/, exports/, and the locks. The folder is the run: copy, move or delete it
with ordinary tools. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.storage import refusal, sync_file, sync_folder
from data.errors import refuse

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""What a run id may look like, whole: nothing that could leave the home folder."""
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


@dataclass(frozen=True)
class Run:
    """One run by its folder. The properties only name paths; none of them need exist."""

    path: Path

    @property
    def id(self) -> str:
        """The folder's name, unique in its home."""
        return self.path.name

    @property
    def home(self) -> Path:
        """The home folder this run lies in."""
        return self.path.parent.parent

    @property
    def job_yaml(self) -> Path:
        """The job as the user wrote it."""
        return self.path / "job.yaml"

    @property
    def job_json(self) -> Path:
        """The resolved job, nulls kept."""
        return self.path / "job.json"

    @property
    def plan_json(self) -> Path:
        """The exact command, versions and forecast."""
        return self.path / "plan.json"

    @property
    def attempt_json(self) -> Path:
        """Which attempt this is, and the checkpoint it resumes from (relative to the run folder) or null."""
        return self.path / "attempt.json"

    @property
    def state_json(self) -> Path:
        """The state as last written; read it through `core.runs.states`, which sees lost runs."""
        return self.path / "state.json"

    @property
    def events(self) -> Path:
        """The events, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """Raw output of the training process."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoint-N folders."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained model; whole when `core.runs.checkpoints.is_complete` says so."""
        return self.path / "model"

    @property
    def exports(self) -> Path:
        """Folder of what was made of the model for others; read it through `core.runs.exports`."""
        return self.path / "exports"

    @property
    def lock(self) -> Path:
        """Locked while a supervisor owns the run."""
        return self.path / "lock"

    @property
    def alive(self) -> Path:
        """Locked while any process of the run lives."""
        return self.path / "alive"

    @property
    def wake(self) -> Path:
        """A named pipe; a byte in it makes the supervisor look around."""
        return self.path / "wake"

    @property
    def stop_file(self) -> Path:
        """Its existence asks the run to save and stop; the text `now` in it, to end without saving."""
        return self.path / "stop"


def home_folder(explicit: Path | None = None) -> Path:
    """The home folder: `explicit`, else FACTORY_HOME, else ~/factory, absolute. Touches nothing."""
    chosen = explicit or Path(os.environ.get("FACTORY_HOME") or Path("~/factory"))
    try:
        return chosen.expanduser().absolute()
    except RuntimeError as error:  # no home directory for this user
        text = f"There is no home directory for {chosen}: set FACTORY_HOME or give --home."
        raise refuse("home_unknown", text, value=str(chosen)) from error


def create_run(
    home: Path,
    job_text: str,
    job_json: Mapping[str, Any],
    plan: Mapping[str, Any],
    *,
    own: Callable[[Run], None] = lambda run: None,
) -> Run:
    """A new run folder with job.yaml, job.json, plan.json and attempt.json, in place whole or not at all.

    `own` is called with the folder before anybody can see it: who takes the run's lock there is its owner from the
    first look on, and no reader takes the new run for a lost one. Raises FactoryError when the home cannot be written.
    """
    runs = home / "runs"
    label = _slug(str(job_json.get("name") or "")) or _slug(str(_stage_name(job_json))) or "run"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        made = runs / f".new-{os.getpid()}-{_random(8)}"
        made.mkdir()
        try:
            _fill(made, job_text, job_json, plan)
            own(Run(made))
            run = _put_in_place(made, runs, label)
        except BaseException:
            import shutil  # megabytes that a waiting supervisor does not need

            shutil.rmtree(made, ignore_errors=True)
            raise
        sync_folder(runs)
    except OSError as error:
        raise refusal(error, runs) from error
    return run


def find_run(home: Path, wanted: str) -> Run:
    """The run with the id `wanted`, or the only one whose id begins or ends with it. Raises FactoryError."""
    if not ID.fullmatch(wanted):
        text = f"{wanted[:80]!r} is not a run id: take one from `factory runs`."
        raise refuse("run_id_invalid", text, value=wanted[:80])
    exact = Run(home / "runs" / wanted)
    if exact.job_json.is_file():
        return exact
    runs = list_runs(home)
    fits = [run for run in runs if run.id.startswith(wanted) or run.id.endswith(wanted)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = ", ".join(run.id for run in fits[-3:])
        text = f"{wanted!r} fits {len(fits)} runs (such as {names}): give more of the id."
        raise refuse("run_ambiguous", text, value=wanted, count=len(fits))
    deleted = [id for id in deleted_runs(home) if id.startswith(wanted) or id.endswith(wanted)]
    if deleted:
        text = f"Run {deleted[-1]} was deleted from {home}; bring it back: factory runs restore {deleted[-1]}"
        raise refuse("run_not_found", text, value=wanted, home=str(home), deleted=deleted[-1])
    raise refuse("run_not_found", _not_found(home, wanted, bool(runs)), value=wanted, home=str(home))


def deleted_runs(home: Path) -> list[str]:
    """The ids of the runs in the trash, oldest first."""
    try:
        return sorted(path.name for path in (home / "trash" / "runs").iterdir() if ID.fullmatch(path.name))
    except (
        OSError
    ):  # no trash, or none that can be looked into: then nothing can be brought back from it either
        return []


def list_runs(home: Path) -> list[Run]:
    """All runs of a home, oldest first by id. A home without runs, or none at all, is an empty list."""
    try:
        names = [path.name for path in (home / "runs").iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refusal(error, home if not home.is_dir() else home / "runs") from error
    return [Run(home / "runs" / name) for name in sorted(names) if ID.fullmatch(name)]


def _not_found(home: Path, wanted: str, any_runs: bool) -> str:
    other = home_folder()
    if other != home and (other / "runs" / wanted / "job.json").is_file():
        return f"There is no run {wanted!r} in {home}, but there is one in {other}: add --home {other}."
    if not any_runs:
        return f"There is no run {wanted!r}: the home {home} holds no runs yet (choose another with --home)."
    return (
        f"There is no run {wanted!r} in {home}: `factory runs` lists them (choose another home with --home)."
    )


def _fill(folder: Path, job_text: str, job_json: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    contents = {
        "job.yaml": job_text,
        "job.json": json.dumps(job_json, ensure_ascii=False, allow_nan=False, indent=2) + "\n",
        "plan.json": json.dumps(plan, ensure_ascii=False, allow_nan=False, indent=2) + "\n",
        "attempt.json": json.dumps({"attempt": 1, "resume": None}) + "\n",
    }
    for name, text in contents.items():
        path = folder / name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        sync_file(path)
    (folder / "checkpoints").mkdir()
    sync_folder(folder)


def _stage_name(job: Mapping[str, Any]) -> str | None:
    stage = job.get("stage")
    return stage.get("name") if isinstance(stage, Mapping) else stage


def _put_in_place(made: Path, runs: Path, label: str) -> Run:
    while True:
        run = Run(runs / f"{time.strftime('%y%m%d-%H%M%S')}-{label}-{_random(4)}")
        try:
            made.rename(run.path)  # refuses to replace a folder that is not empty
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            return run


def _slug(name: str) -> str:
    """The part of an id that reminds of a name: a-z and digits only; empty when the name has none of them."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:32].strip("-")


def _random(length: int) -> str:
    return "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(length))
