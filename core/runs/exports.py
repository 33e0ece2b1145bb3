"""The exports of a run: made by a process of their own, each with a record that any reader may look at.

exports/<name>/ is the finished export, exports/<name>.json its record, <name>.log what its process said, <name>.lock
locked while that process lives. An export is whole or is not there: it is made under a temporary name. Standard
library only, for the supervisor makes exports too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.runs import checkpoints
from core.runs.folder import Run
from core.runs.locks import is_held, take
from core.runs.storage import read_json, refusal, refuse_target, write_json
from core.runs.weights import weights_of
from data.errors import FactoryError, Finding, refuse

CHECKOUT = Path(__file__).resolve().parents[2]
VERSION = 1
ENDS = ("done", "failed", "cancelled")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
KILLED = "its process was killed before it was done; start it again"
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Secrets that only a push to the hub gets."""
GRACE = 20.0
"""Seconds a cancelled export gets to tidy up before it is killed."""


@dataclass(frozen=True)
class Export:
    """One export of a run, as far as its record and the kernel can tell."""

    run: Run
    name: str
    state: str
    """starting, running, done, failed or cancelled."""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.state in ENDS

    @property
    def path(self) -> Path | None:
        """The finished folder; None before it is there."""
        place = self.record.get("path")
        return Path(place) if self.state == "done" and place else None

    @property
    def log(self) -> Path:
        """What its process printed."""
        return self.run.exports / f"{self.name}.log"

    @property
    def error(self) -> dict[str, Any] | None:
        """Code and sentence of what ended it, when it failed."""
        if self.state != "failed":
            return None
        return self.record.get("error") or {"code": "export_killed", "message": KILLED}

    def to_json(self) -> dict[str, Any]:
        """The export in plain JSON, for `--json` and REST."""
        kept = ("target", "spec", "phase", "share", "started", "ended", "bytes", "verified_by", "notes")
        told = {key: self.record.get(key) for key in kept}
        path = str(self.path) if self.path else None
        return {
            "name": self.name,
            "state": self.state,
            **told,
            "path": path,
            "log": str(self.log),
            "error": self.error,
        }


def list_exports(run: Run) -> list[Export]:
    """All exports of a run, oldest first."""
    found = [one for path in _records(run) if (one := find_export(run, path.stem)) is not None]
    return sorted(found, key=lambda one: (one.record.get("started") or 0.0, one.name))


def find_export(run: Run, name: str) -> Export | None:
    """The export called `name`, or None when there is no such thing."""
    if not NAME.fullmatch(name):
        return None
    record = _read(run, name)
    if record is None:
        return None
    state = str(record.get("state"))
    if state not in ENDS and not is_held(run.exports / f"{name}.lock"):
        record = _read(run, name) or record  # it may have ended between the two looks
        state = str(record.get("state"))
        state = state if state in ENDS else "failed"
    return Export(run, name, state, record)


def start(
    run: Run, spec: Mapping[str, Any], *, out: Path | None = None, base: str | None = None
) -> tuple[Export, subprocess.Popen[bytes]]:
    """Begin one export of a run in a process of its own; returns at once with its record and that process.

    What is wrong with `out` or `base` is refused before anything is written.
    `spec` is a checked export as plain values; `out` another place than the run's exports folder, which must not exist;
    `base` where the model that an adapter belongs to has moved. Raises FactoryError when the run has nothing to
    export, or the disk refuses.
    """
    weights_of(run, spec.get("checkpoint"))
    _refuse_places(run, out, base)
    try:
        run.exports.mkdir(exist_ok=True)
        _tidy(run)
        name, lock = _claim(run, _label(spec))
        try:
            record = _fresh(run, name, spec, out, base)
            write_json(run.exports / f"{name}.json", record)
            child = _spawn(run, name, lock, spec)
        finally:
            os.close(lock)
    except OSError as error:
        raise refusal(error, run.exports) from error
    return Export(run, name, "starting", record), child


def _refuse_places(run: Run, out: Path | None, base: str | None) -> None:
    """Refuse an `out` that is there or cannot be made, and a `base` that is no model, both at once."""
    findings: list[Finding] = []
    try:
        if out is not None:
            refuse_target(out)
    except FactoryError as refused:
        findings += refused.findings
    if base is not None:
        from core.job.models import check_folder, locate  # not with the module: the supervisor names no base

        try:
            if folder := locate(base, run.home).folder:
                check_folder(folder)
        except FactoryError as refused:
            text = f"--base {base!r}: {refused.findings[0].message}"
            findings += refuse("base_unknown", text, field="base", value=base).findings
    if findings:
        raise FactoryError(findings)


def cancel(export: Export) -> Export:
    """End an export that is being made; what was half made is removed. Raises FactoryError when it is over."""
    export = _now(export)
    if export.over:
        text = f"Export {export.name} of run {export.run.id} is not being made: it is {export.state}."
        raise refuse("export_over", text, value=export.name, state=export.state)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE
        signalled = False
        while time.monotonic() < deadline and not export.over:
            signalled = signalled or _signal(export, number)  # its process may not have said its number yet
            time.sleep(0.05)
            export = _now(export)
    return export


def _now(export: Export) -> Export:
    return find_export(export.run, export.name) or export


def remove(export: Export) -> int:
    """Delete a finished, failed or cancelled export with its record; bytes freed. Raises FactoryError."""
    if not export.over:
        text = f"Export {export.name} of run {export.run.id} is being made: cancel it first."
        raise refuse("export_active", text, value=export.name)
    folder = export.run.exports / export.name
    freed = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        if folder.exists():
            checkpoints.discard(folder)
        for ending in ("json", "log", "lock"):
            (export.run.exports / f"{export.name}.{ending}").unlink(missing_ok=True)
    except OSError as error:
        raise refusal(error, folder) from error
    return freed


class Writer:
    """The one writer of an export's record: the process that makes it."""

    def __init__(self, run: Run, name: str) -> None:
        self.path = run.exports / f"{name}.json"
        self.record: dict[str, Any] = read_json(self.path)

    def note(self, **facts: Any) -> None:
        """Put facts into the record. Raises OSError."""
        self.record |= facts
        write_json(self.path, self.record)

    def phase(self, text: str, share: float) -> None:
        """What is being done now, and how much of the whole is behind it (0 to 1). A full disk loses only this."""
        with contextlib.suppress(OSError):
            self.note(state="running", phase=text, share=round(share, 3))

    def end(self, state: str, **facts: Any) -> None:
        """How it ended. On a full disk the words go without their details, into the bytes that are there."""
        facts = {"phase": None, "share": None, "ended": round(time.time(), 3), **facts}
        try:
            self.note(state=state, **facts)
        except OSError:
            self.record |= {"state": state, **facts}
            import json

            self.path.write_text(json.dumps(self.record, ensure_ascii=False), "utf-8")


def _fresh(
    run: Run, name: str, spec: Mapping[str, Any], out: Path | None, base: str | None
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": name,
        "target": spec["name"],
        "spec": dict(spec),
        "out": str(out) if out is not None else None,
        "base": base,
        "state": "starting",
        "phase": "starting",
        "share": 0.0,
        "started": round(time.time(), 3),
        "path": None,
        "error": None,
    }


def _spawn(run: Run, name: str, lock: int, spec: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start the export's process: in a session of its own, so that it outlives the terminal or server that asked."""
    from core.runs.process import environment

    secrets = TOKENS if spec["name"] == "hub" else ()
    named = ["HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", *secrets]
    with (run.exports / f"{name}.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "core.training.exporting", str(run.path), name],
            cwd=CHECKOUT,
            env=environment(os.environ, named, [], run.home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            start_new_session=True,
        )


def _claim(run: Run, label: str) -> tuple[str, int]:
    """A name that no other export of the run has, and its lock, held."""
    number = 1
    while True:
        name = label if number == 1 else f"{label}-{number}"
        taken = any((run.exports / f"{name}{ending}").exists() for ending in ("", ".json"))
        if not taken and (lock := take(run.exports / f"{name}.lock", patience=0.0)) is not None:
            if not (run.exports / f"{name}.json").exists():
                return name, lock
            os.close(lock)
        number += 1


def _label(spec: Mapping[str, Any]) -> str:
    parts = [str(spec["name"])]
    if spec["name"] == "hub":
        parts.append(str(spec.get("content") or "merged"))
    if spec["name"] in ("gguf", "ollama") or spec.get("content") == "gguf":
        parts.append(str(spec.get("quant") or "q8_0"))
    elif spec.get("dtype") not in (None, "auto"):
        parts.append(str(spec["dtype"]))
    if spec.get("checkpoint") is not None:
        parts.append(f"step{spec['checkpoint']}")
    return "-".join(parts)


def _tidy(run: Run) -> None:
    """Remove what killed exports left half made."""
    for path in run.exports.glob(".tmp-*"):
        name = path.name.removeprefix(".tmp-")
        if not is_held(run.exports / f"{name}.lock") and path.is_dir():
            checkpoints.discard(path)


def _signal(export: Export, number: int) -> bool:
    """Signal the export's process, if its number still is that process: it holds the lock file open. Whether it did."""
    from core.runs.process import holders_of

    pid = export.record.get("pid")
    if not isinstance(pid, int) or pid not in holders_of(export.run.exports / f"{export.name}.lock"):
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
    return True


def _records(run: Run) -> list[Path]:
    try:
        return [
            path for path in run.exports.iterdir() if path.suffix == ".json" and NAME.fullmatch(path.stem)
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(run: Run, name: str) -> dict[str, Any] | None:
    try:
        record = read_json(run.exports / f"{name}.json")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {"state": "failed", "error": {"code": "export_damaged", "message": "its record is damaged"}}
    return record if isinstance(record, dict) else {"state": "failed"}
