"""What would go wrong with a job on this machine, all of it, before anything starts and without torch.

One function per subject, in one tuple. A finding that a change of the job would settle carries that change.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.job.batch_checks import PREFERENCE, batch_findings
from core.job.case import ELSEWHERE, Case, find, looked
from core.job.choose import settled
from core.job.engine_checks import engine_findings
from core.job.exports import export_bytes
from core.job.exports import findings as export_findings
from core.job.forecast import Forecast, disk_bytes, forecast, judge
from core.job.hardware_checks import hardware_findings
from core.job.launcher_checks import elsewhere, launcher_findings, machine_of
from core.job.machine import CHECKOUT, Machine, disk_free, installed
from core.job.memory import trained_weights
from core.job.model_checks import model_findings
from core.job.models import (
    EMBEDDED,
    ModelPlace,
    adapter_folder,
    check_folder,
    hub_cache,
    locate,
    parameter_count,
    read_config,
)
from core.job.packages import missing_packages, vllm_problems
from core.job.presets import preset_for, resolve
from core.job.row_checks import row_findings
from core.job.spec import JobSpec
from core.rewards import Setting, build_scorers
from core.stages import stage_module
from data.errors import FactoryError, Finding, findings_of
from data.files import find_files
from data.userpath import user_path
from data.words import byte_size

NEEDED = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
TEMPLATES = CHECKOUT / "templates" / "chat"

TOO_HIGH = 25
"""A learning rate so many times the preset is hardly meant; the highest that recipes use on purpose stay below."""


def check(job: JobSpec, machine: Machine, home: Path, *, full: bool = False) -> list[Finding]:
    """Everything worth telling about a job before it runs, errors first; empty when nothing is.

    Of the data the first rows are looked at, or all with `full`.
    """
    findings: list[Finding] = []
    model: ModelPlace | None = None
    machine = machine_of(job, machine)
    if (chosen := settled(job, machine, home)) is not None:
        job = chosen.job
        findings.append(chosen.finding)
    try:
        model = locate(job.model.name, home, revision=job.model.revision)
    except FactoryError as error:
        findings += error.findings
    case = Case(job, machine, home, model, full)
    for one in CHECKS:
        findings += one(case)
    return sorted(findings, key=lambda found: ("error", "warning", "note").index(found.level))


def insisted(findings: list[Finding]) -> list[Finding]:
    """The findings without the forecast's refusal, for somebody who wants to try anyway."""
    return [one for one in findings if one.code not in ("memory_too_small", "host_memory_too_small")]


def refuse_errors(findings: list[Finding]) -> None:
    """Raise FactoryError with the findings when one of them is an error."""
    if any(one.level == "error" for one in findings):
        raise FactoryError(findings)


def _installation(case: Case) -> Iterator[Finding]:
    missing = [name for name in NEEDED if installed(name) is None]
    if missing:
        yield find(
            "packages_missing",
            "error",
            None,
            missing,
            f"Training needs {', '.join(missing)}, which this Python does not have; "
            "start through `python launch.py`, or run: pip install -r requirements.txt",
        )


def _model(case: Case) -> Iterator[Finding]:
    name, revision = case.job.model.name, case.job.model.revision
    if case.model is None:
        return
    if revision is not None and case.model.kind != "hub":
        yield find(
            "revision_without_hub",
            "error",
            "model.revision",
            revision,
            f"model.revision {revision!r} is only for hub ids, and {name!r} is none; take it out.",
            model__revision=None,
        )
    if case.model.kind != "embedded" and case.model.folder is not None:
        try:
            check_folder(case.model.folder)
            parameter_count(case.model)
        except FactoryError as error:
            yield from error.findings
    if case.job.model.adapter is not None:
        try:
            adapter_folder(case.job.model.adapter)
        except FactoryError as error:
            yield from error.findings
    if case.model.kind == "hub" and case.model.folder is None:
        yield _not_here(name)


def _not_here(name: str) -> Finding:
    offline = next((key for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if _is_on(key)), None)
    if offline is None:
        text = f"model {name!r} is not on this machine yet; the hub is asked when training starts."
        return find("model_to_download", "note", "model.name", name, text)
    text = (
        f"model {name!r} is not in the cache {hub_cache()} and {offline} forbids downloads; "
        f"unset {offline}, or give a folder that holds the model."
    )
    return find("model_offline", "error", "model.name", name, text)


def _is_on(variable: str) -> bool:
    # The values that huggingface_hub counts as true (constants.ENV_VARS_TRUE_VALUES).
    return os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}


def _template(case: Case) -> Iterator[Finding]:
    name = case.job.model.template
    if name is None or (name.endswith(".jinja") and user_path(name).is_file()):
        return
    known = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    text = f"model.template {name!r} is neither a .jinja file nor one of {', '.join(known) or 'none'}"
    if near:
        yield find(
            "template_not_found",
            "error",
            "model.template",
            name,
            f"{text}; did you mean {near[0]}?",
            model__template=near[0],
        )
    else:
        yield find("template_not_found", "error", "model.template", name, f"{text}; correct or empty it.")


def _rewards(case: Case) -> Iterator[Finding]:
    """Whether every reward could work here: the operator's permissions, patterns, files, models; and is asked."""
    rewards, stage = case.job.rewards, case.job.stage.name
    asks = getattr(stage_module(stage), "REWARDED", False)
    if asks and not rewards:
        yield find(
            "rewards_missing",
            "error",
            "rewards",
            [],
            f"the stage {stage} learns from rewards and the job names none; add some, such as rewards: [accuracy].",
        )
    if rewards and not asks:
        yield find(
            "rewards_unused",
            "warning",
            "rewards",
            [reward.name for reward in rewards],
            f"the stage {stage} learns from the answers in the data and asks no rewards; take rewards out.",
            rewards=[],
        )
    told: list[Finding] = []
    try:
        build_scorers(rewards, Setting(case.home, told.append, log=False))
    except FactoryError as error:
        yield from error.findings
    yield from told


def _schedule(case: Case) -> Iterator[Finding]:
    train, held_out = case.job.train, case.job.data.eval is not None
    if train.keep_best and not held_out:
        yield find(
            "keep_best_without_eval",
            "error",
            "train.keep_best",
            True,
            "train.keep_best needs held-out data to know what is best; set data.eval (0.05 holds out 5 %), "
            "or train.keep_best to false.",
            data__eval=0.05,
        )
    if train.eval_steps is not None and not held_out:
        yield find(
            "eval_steps_without_eval",
            "warning",
            "train.eval_steps",
            train.eval_steps,
            "train.eval_steps does nothing without held-out data; set data.eval (0.05 holds out 5 %).",
            data__eval=0.05,
        )
    if train.epochs is not None and train.max_steps is not None:
        yield find(
            "epochs_and_max_steps",
            "warning",
            "train.epochs",
            train.epochs,
            f"train.epochs {train.epochs:g} is ignored: train.max_steps is {train.max_steps:,}; keep one.",
            train__epochs=None,
        )
    if train.max_steps is not None and train.warmup is not None and 1 <= train.max_steps <= train.warmup:
        yield find(
            "warmup_all_the_way",
            "warning",
            "train.warmup",
            train.warmup,
            f"train.warmup {train.warmup:g} takes all of the {train.max_steps:,} steps, so the peak learning "
            "rate is never reached; lower it, or write a share such as 0.1.",
            train__warmup=0.1,
        )
    yield from _learning_rate(case)


def _learning_rate(case: Case) -> Iterator[Finding]:
    rate, stage, method = case.job.train.learning_rate, case.job.stage.name, case.job.method.name
    preset = preset_for(stage, None)
    usual = preset.full_rate if method == "full" else preset.lora_rate
    if rate == 0:
        yield find(
            "learning_rate_zero",
            "warning",
            "train.learning_rate",
            rate,
            f"train.learning_rate 0 learns nothing; {usual:g} is usual for {stage} with {method}.",
            train__learning_rate=usual,
        )
    if rate is not None and rate > TOO_HIGH * usual and stage not in PREFERENCE:
        yield find(
            "learning_rate_high",
            "warning",
            "train.learning_rate",
            rate,
            f"train.learning_rate {rate:g} is far above the usual {usual:g} for {stage} with {method}: "
            "the loss will most likely grow; lower it.",
            train__learning_rate=usual,
        )


def _storage(case: Case) -> Iterator[Finding]:
    place = case.home.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        text = (
            f"The home folder {case.home} cannot be made, {place} is no folder; choose another with --home."
        )
        yield find("home_not_a_folder", "error", None, str(case.home), text)
        return
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"The home folder {case.home} cannot be written; choose another with --home or FACTORY_HOME."
        yield find("home_read_only", "error", None, str(case.home), text)
        return
    need, free = bytes_needed(case), disk_free(case.home)
    if need is not None and free < need:
        text = (
            f"The run needs about {byte_size(need)} for its checkpoints and model, and {case.home} has "
            f"{byte_size(free)} free; make room, lower train.keep_checkpoints, or choose another --home."
        )
        yield find("disk_too_small", "error", "train.keep_checkpoints", case.job.train.keep_checkpoints, text)


def bytes_needed(case: Case) -> int | None:
    """Disk a run takes at its fullest: kept checkpoints, one being written, the model, exports. None when unknown."""
    if case.shape is None:
        return None
    checkpoint, model = disk_bytes(case.resolved, case.shape)
    train = case.job.train
    exports = export_bytes(case.resolved, case.shape.parameters, trained_weights(case.resolved, case.shape))
    return checkpoint * (train.keep_checkpoints + 1 + train.keep_best) + model + exports


def _memory(case: Case) -> Iterator[Finding]:
    """Whether the forecast fits the device; rows that cannot be read are a finding of their own."""
    if case.shape is None or case.lengths is None or elsewhere(case.job):
        return
    told = forecast(case.resolved, case.shape, case.machine, case.home, lengths=case.lengths)
    yield from _host_memory(case, told)
    if told.verdict == "fits":
        return
    where = "this machine" if told.device == "cpu" else told.device
    text = f"The job takes about {byte_size(told.memory_total)} of memory, and {where} has {byte_size(told.available)}"
    if told.change:
        change = ", ".join(f"{name} {_word(value)}" for name, value in told.change.items())
        text += f"; the cheapest change that fits: {change}"
    else:
        text += "; no change of it fits: take a smaller model or a larger machine"
    text += " (factory train --anyway tries it as it is)." if told.verdict == "too large" else "."
    field = next(iter(told.change), "model.name") if told.change else "model.name"
    if told.verdict == "tight":
        yield Finding("memory_tight", text, "warning", field, params=_sizes(told), fix=told.change)
    else:
        yield Finding("memory_too_small", text, "error", field, params=_sizes(told), fix=told.change)


def _host_memory(case: Case, told: Forecast) -> Iterator[Finding]:
    """Whether the machine's own memory holds what lies there instead of on the devices."""
    verdict = judge(told.host, told.host_available)
    if not told.host or verdict == "fits":
        return
    offload = case.job.hardware.offload
    field, what = ("hardware.offload", "states") if offload else ("engine.checkpointing", "activations")
    less = "more devices without offload" if offload else "engine.checkpointing plain"
    text = (
        f"The job keeps about {byte_size(told.host)} of {what} in the machine's memory ({field}), and this machine has "
        f"{byte_size(told.host_available)}; take {less}, an adapter, a smaller model or a machine with more."
    )
    sizes = {"needed": told.host, "available": told.host_available}
    fix = None if offload else {"engine.checkpointing": "plain"}
    if verdict == "tight":
        yield Finding("host_memory_tight", text, "warning", field, params=sizes, fix=fix)
    else:
        yield Finding("host_memory_too_small", text, "error", field, params=sizes, fix=fix)


def _sizes(told: Forecast) -> dict[str, Any]:
    return {"needed": told.memory_total, "available": told.available, "parts": told.memory}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _data(case: Case) -> Iterator[Finding]:
    """Whether the files are there, and if all are, what a look at their first rows tells."""
    data, needs = case.job.data, stage_module(case.job.stage.name).NEEDS
    held_out = data.eval if isinstance(data.eval, str) else None
    named = {"data.path": data.path, "data.registry": data.registry, "data.eval": held_out}
    named |= {f"data.sources[{place}].path": source.path for place, source in enumerate(data.sources)}
    missing = [finding for field, path in named.items() if path for finding in _missing_files(field, path)]
    if missing:
        yield from missing
        return
    yield from findings_of(case.seen["findings"])
    if held_out:
        yield from (replace(one, field="data.eval") for one in _look(case, {"path": held_out}, needs))


def _look(case: Case, data: dict[str, Any], needs: Sequence[str]) -> list[Finding]:
    return findings_of(looked(case, data, needs)["findings"])


def _missing_files(field: str, path: str) -> list[Finding]:
    if path.startswith(ELSEWHERE):
        return []
    try:
        find_files(path)
    except FactoryError as error:
        return [replace(one, field=field) for one in error.findings]
    return []


def _packages(case: Case) -> Iterator[Finding]:
    yield from missing_packages(case.job, case.home)
    yield from vllm_problems(case.job, gpu=case.machine.has_gpu)


def _stage(case: Case) -> Iterator[Finding]:
    """What the stage itself has to say about the job, with every preset filled in."""
    look = getattr(stage_module(case.job.stage.name), "look", None)
    if look is not None:
        yield from look(resolve(case.job, parameters=None, gpu=case.machine.has_gpu).job, case.home)


def _exports(case: Case) -> Iterator[Finding]:
    """What the job's exports cannot be made of, before hours of training."""
    if not case.job.export or case.model is None:
        return
    config: Mapping[str, Any] = {}
    try:
        if case.model.folder is not None:
            config = read_config(case.model.folder)
        elif case.model.kind == "embedded":
            config = EMBEDDED[case.model.name].config
    except FactoryError:  # told by _model
        pass
    yield from export_findings(case.job, config.get("model_type"))


CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _installation,
    _packages,
    _model,
    model_findings,
    _template,
    _data,
    row_findings,
    _rewards,
    engine_findings,
    launcher_findings,
    _stage,
    _exports,
    _schedule,
    batch_findings,
    hardware_findings,
    _storage,
    _memory,
)
