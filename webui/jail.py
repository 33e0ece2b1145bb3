"""Which files a job that comes from a browser or a script may name: those under the home, under the operator's folders,
and the samples that come with Factory; and which machines and images: those that the operator named. One function, for
check, plan, preview and start alike.

The command line is not limited: whoever uses it can read those files anyway.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.job.machine import CHECKOUT
from core.job.models import EMBEDDED
from core.job.places import absolute, path_fields, with_fields_set
from core.job.spec import JobSpec
from core.launchers import slurm
from data.errors import FactoryError, Finding
from data.files import find_files
from data.registry import from_registry
from data.settings import Source
from data.userpath import user_path
from webui.settings import Settings

BUNDLED = (CHECKOUT / "data" / "samples", CHECKOUT / "templates" / "chat")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
"""A hub id, a run's id, the name of a template."""
HOSTS = "FACTORY_HOSTS"
"""The operator's list of machines that jobs from the board may be started on over ssh."""
IMAGES = "FACTORY_IMAGES"
"""The operator's list of container images that jobs from the board may run on a cluster."""
ELSEWHERE = ("hub:", "gym:")
"""Data that is no file: a data set of the hub by its id, tasks made by a generator."""


def placed(job: JobSpec, settings: Settings) -> JobSpec:
    """The job with its paths absolute, each judged. Relative ones are meant from the data folder, then from the home.

    Entries of a registry become plain paths, so that what is judged is what will be read. Raises FactoryError for
    every path outside, in the same words whether there is such a file or not.
    """
    here = settings.home / "data"
    plain = absolute(job, settings.home, here=here).model_dump(mode="json")
    problems = [*_foreign_hosts(job), *_foreign_code(job)]
    for field, holder, key in path_fields(plain):
        text = holder[key]
        if _must_be_a_file(key, text):
            text = holder[key] = str(here / user_path(text))
        if not _may(key, text, settings):
            problems.append(_outside(field, text, settings))
    if problems:
        raise FactoryError(problems)
    _open_registries(plain, settings)
    return with_fields_set(job, type(job).model_validate(plain))


def _foreign_hosts(job: JobSpec) -> Iterator[Finding]:
    """Machines that a job from a browser may not have this one log in to: all that the operator has not named."""
    allowed = os.environ.get(HOSTS, "").replace(",", " ").split()
    for place, host in enumerate(getattr(job.launcher, "hosts", [])):
        if host not in allowed:
            text = (
                f"launcher.hosts names {host!r}, to which this board may not log in; have the operator name it in "
                f"{HOSTS}, or leave hosts empty and start the node there by hand."
            )
            yield Finding("host_outside", text, field=f"launcher.hosts[{place}]", value=host)


def _foreign_code(job: JobSpec) -> Iterator[Finding]:
    """What of a job from a browser a cluster would run or open: shell lines, images and folders of somebody's own."""
    if not isinstance(job.launcher, slurm.Spec):
        return
    for field, words in (("setup", "lines of shell"), ("mounts", "folders for a container")):
        if getattr(job.launcher, field):
            text = (
                f"launcher.{field} holds {words}, which no job from the board may bring; leave it out, or start the "
                "job file with factory train."
            )
            yield Finding("not_from_board", text, field=f"launcher.{field}", value=None)
    image = job.launcher.container
    if image is not None and image not in os.environ.get(IMAGES, "").replace(",", " ").split():
        text = (
            f"launcher.container names {image!r}, which no job from the board may run; have the operator name it in "
            f"{IMAGES}, or start the job file with factory train."
        )
        yield Finding("image_outside", text, field="launcher.container", value=image)


def inside(path: Path, settings: Settings) -> bool:
    """Whether a path leads, every link and `..` followed, to something below an allowed folder and not hidden there."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        return False
    for root in (settings.home, *settings.allow, *BUNDLED):
        base = root.resolve()
        if real.is_relative_to(base):
            return not any(part.startswith(".") for part in real.relative_to(base).parts)
    return False


def _must_be_a_file(key: str, text: str) -> bool:
    """Whether a text can mean nothing but a file or folder."""
    if key in ("path", "eval"):
        return not text.startswith(ELSEWHERE)
    return key in ("registry", "adapter") or (key == "template" and text.endswith(".jinja"))


def _may(key: str, text: str, settings: Settings) -> bool:
    """Whether a field may hold this text: the name of something that is no file, or a path inside."""
    path = Path(text)
    if "\0" in text:
        return False
    if path.is_absolute() or _must_be_a_file(key, text):
        return inside(path, settings) and all(inside(one, settings) for one in _meant(key, text))
    if key in ("path", "eval"):
        return True
    if key == "name" and text in EMBEDDED:
        return True
    # Looked for in the current folder of whoever reads it, too: there it must be nothing.
    return WORD.fullmatch(text) is not None and ".." not in path.parts and not _exists(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _meant(key: str, text: str) -> Iterator[Path]:
    """Every file that a pattern or a folder of data stands for."""
    if key not in ("path", "eval") or (not any(mark in text for mark in "*?[") and not Path(text).is_dir()):
        return
    try:
        yield from find_files(text).files
    except FactoryError:
        return


def _open_registries(plain: dict[str, Any], settings: Settings) -> None:
    """Put the path that each registry entry means in the entry's place, judged like any other."""
    data = plain["data"]
    sources = [
        ("data", data),
        *((f"data.sources[{at}]", one) for at, one in enumerate(data.get("sources") or ())),
    ]
    for field, one in sources:
        if not one.get("registry"):
            continue
        known = {key: one[key] for key in ("registry", "name", "split", "subset", "columns", "take")}
        meant = from_registry(Source(**known))
        if not _may("path", str(meant.path), settings):
            raise FactoryError(_outside(f"{field}.registry", str(meant.path), settings))
        one |= {"registry": None, "name": None, "path": meant.path, "columns": dict(meant.columns)}
        one |= {"split": meant.split, "subset": meant.subset, "take": meant.take}


def _outside(field: str, text: str, settings: Settings) -> Finding:
    shown = text if len(text) <= 120 else text[:119] + "…"
    words = (
        f"{field} {shown!r} is not under the home's folders, the only files that a job from the board may name: upload "
        f"it, copy it to {settings.home / 'data'}, or have the operator start the board with --allow-dir."
    )
    return Finding("path_outside", words, field=field, value=shown)
