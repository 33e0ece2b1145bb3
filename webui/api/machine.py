"""Routes about this machine and this installation: health, machine, features, schema, recipes."""

from __future__ import annotations

import importlib.util
import itertools
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from core.job.machine import CHECKOUT, Machine, disk_free, factory_version, versions
from core.runs.queue import Queue, slot_names
from webui.api.answers import Features, Health, MachineAnswer, Recipes
from webui.api.here import InHere, Json

router = APIRouter(tags=["machine"])
RECIPES = CHECKOUT / "templates" / "jobs"


@router.get("/health", response_model=Health)
def health() -> Json:
    """Whether the server is up. Needs no token."""
    return {"ok": True}


@router.get("/features", response_model=Features)
def features() -> Json:
    """Which parts this installation has."""
    return {
        "chat": _there("webui.api.chat"),
        "export": _there("webui.api.exports"),
        "serve": _there("core.cli.serve"),
    }


@router.get("/machine", response_model=MachineAnswer)
def machine(here: InHere, request: Request) -> Json:
    """Cores, memory, disk, GPUs, versions, how busy it is, and which runs hold its devices."""
    found = here.machine()
    return {
        "text": words(found),
        "cpus": found.cores,
        "memory": found.memory,
        "memory_free": found.memory_free,
        "disk_free": _free(here.home),
        "gpus": found.to_json()["gpus"],
        "gpu_problem": found.gpu_problem,
        "system": found.system,
        "python": found.python,
        "factory": factory_version(),
        "home": str(here.home),
        "versions": _versions(),
        "load": request.app.state.hub.meters.load(),
        "slots": slots(),
    }


@router.get("/schema", response_model=dict[str, Any])
def schema() -> JSONResponse:
    """The JSON schema of a job, as `factory schema` prints it."""
    from core.job.schema import job_schema

    return JSONResponse(dict(job_schema()))


@router.get("/recipes", response_model=Recipes)
def recipes() -> Json:
    """Ready jobs, each with what it teaches and on what machine it runs."""
    return {"recipes": all_recipes()}


def words(machine: Machine) -> str:
    """The machine in one line: `CPU · 2 cores · 24 GiB · no GPU`."""
    parts = [
        f"{machine.cores} {'core' if machine.cores == 1 else 'cores'}",
        f"{machine.memory / 2**30:.0f} GiB",
    ]
    if not machine.gpus:
        return " · ".join(["CPU", *parts, "no GPU"])
    names = [f"{gpu.name} {gpu.memory / 2**30:.0f} GiB" for gpu in machine.gpus]
    alike = len(set(names)) == 1
    gpus = [f"{len(names)} × {names[0]}" if alike and len(names) > 1 else names[0]] if alike else names
    return " · ".join([*gpus, *parts])


def slots() -> list[Json]:
    """The devices that runs can take, and which run has each."""
    holders = Queue().holders()
    return [
        {
            "slot": name,
            "run": Path(holders[name].get("run", "?")).name if name in holders else None,
            "user": holders[name].get("user") if name in holders else None,
        }
        for name in sorted({*slot_names(), *holders})
    ]


@cache
def all_recipes() -> list[Json]:
    """The jobs of templates/jobs, the quickstart first. Of each the comment at its top says what it teaches."""
    found = [_recipe(path) for path in sorted(RECIPES.glob("*.yaml"))]
    return sorted(found, key=lambda one: (one["name"] != "quickstart", one["hardware"] != "cpu", one["name"]))


def _recipe(path: Path) -> Json:
    from core.job.load import parse_job

    text = path.read_text("utf-8")
    job = parse_job(text, origin=path.name)
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    words = " ".join(line.lstrip("# ").strip() for line in head)  # about it, Needs: ..., Run: ...
    about, _, rest = words.partition("Needs:")
    needs = rest.partition("Run:")[0]
    return {
        "name": path.stem,
        "title": (job.name or path.stem).replace("-", " "),
        "about": about.strip(),
        "needs": needs.strip(),
        "stage": job.stage.name,
        "method": job.method.name,
        "model": job.model.name,
        "hardware": "gpu" if path.stem.endswith("-gpu") else "cpu",
        "yaml": text,
    }


@cache
def _versions() -> dict[str, str | None]:
    return versions()


@cache
def _there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _free(home: Path) -> int | None:
    try:
        return disk_free(home)
    except OSError:
        return None
