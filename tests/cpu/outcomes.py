"""What a job becomes, as flat plain values, by the functions that the training process itself calls (in a child).

`told` is what trainers, adapters, loaders and rows are given, with trl's real configuration objects. `built`
goes further and makes the real session with its trainer and callback, for what is in no configuration object.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

Flat = dict[str, str]
PLAIN = (str, int, float, bool, type(None))


def changes(pairs: list[dict[str, Any]], home: str) -> list[dict[str, list[str]]]:
    """For each {how, base, changed}: the names whose values differ, with the new values (`refused`: its fields)."""
    from data.errors import FactoryError

    kept: dict[str, Flat] = {}
    found = []
    for number, pair in enumerate(pairs):
        make = {"told": told, "built": built}[pair["how"]]
        key = json.dumps([pair["how"], pair["base"]])
        if key not in kept:
            kept[key] = make(pair["base"], Path(home) / f"base{number}")
        try:
            after = make(pair["changed"], Path(home) / f"changed{number}")
        except FactoryError as error:
            found.append({"refused": [str(one.field) for one in error.findings]})
            continue
        before = kept[key]
        names = sorted(before.keys() | after.keys())
        found.append({name: [after.get(name, "")] for name in names if before.get(name) != after.get(name)})
    return found


def told(job: dict[str, Any], home: Path) -> Flat:
    """What everything is given, without loading anything."""
    from core.engines import engine_module
    from core.job.schedule import schedule
    from core.training.context import Context
    from core.training.rows import settings_of

    asked = resolved(job)
    times = schedule(asked.train, 96 * asked.stage.repeats, processes=asked.hardware.processes)
    context = Context(
        job=asked,
        output_dir=Path("out"),
        model=None,
        tokenizer=None,
        train_rows=[],
        eval_rows=[] if asked.data.eval else None,
        schedule=times,
        callbacks=[],
        gpu=False,
        home=Path("home"),
        emit=lambda finding: None,
        show=lambda *words: None,
    )
    return {
        **flat("command", engine_module(asked.engine.name).plan(asked, Path("home"))),
        **flat("rows", dataclasses.asdict(settings_of(asked))),
        **flat("schedule", dataclasses.asdict(times)),
        **flat("config", _configuration(context)),
        **_learning(asked),
    }


def resolved(job: dict[str, Any]) -> Any:
    """The job with its presets, as a plan has it."""
    from core.job.load import check_values
    from core.job.presets import resolve

    return resolve(check_values(job), parameters=10**8, gpu=False).job


def _configuration(context: Any) -> dict[str, Any]:
    """The real configuration object's values; what only makes sense among other processes is left as it is given."""
    from transformers import TrainingArguments

    from core.training.arguments import common_arguments, sharing_arguments
    from core.training.eject_script import _config_class, _Kind

    if context.job.stage.name == "ppo":
        settings, kind = common_arguments(context), TrainingArguments
        settings.pop("trust_remote_code")
    else:
        made = _Kind.of(context.job, context)
        settings, kind = dict(made.settings), _config_class(made)
    shared = {name: settings.pop(name) for name in sharing_arguments(context.job, gpu=False, half="")}
    key = kind.__name__ + json.dumps(settings, default=str, sort_keys=True)
    if key not in _made:  # the same for most strategies, and half of what a look costs
        _made[key] = kind(**settings).to_dict()
    return {**_made[key], "shared": shared}


_made: dict[str, dict[str, Any]] = {}


def _learning(asked: Any) -> Flat:
    """How the model is loaded, and what learns."""
    from core.methods import method_module
    from core.methods.adapter import AdapterSpec, lora_config
    from core.training import unsloth_engine

    if asked.engine.name == "unsloth":
        wears = isinstance(asked.method, AdapterSpec)
        return {
            **flat("variables", unsloth_engine.variables(asked, Path("home"))),
            **flat("loading", unsloth_engine.loading(asked, gpu=False, limit=None)),
            **(flat("adapter", unsloth_engine.adapter(asked)) if wears else {}),
        }
    kept = {
        name: value.to_dict() if hasattr(value, "to_dict") else value
        for name, value in method_module(asked.method.name).loading(asked.method, gpu=False).items()
    }
    wears = isinstance(asked.method, AdapterSpec)
    worn = lora_config(asked.method, "CAUSAL_LM").to_dict() if wears else {}
    return {**flat("loading", kept), **flat("adapter", worn)}


def built(job: dict[str, Any], home: Path) -> Flat:
    """What the real session makes of it: model, trainer, callback, prompts and rows."""
    from core.runs.folder import Run
    from core.training.session import _Session
    from core.training.stop import StopRequest
    from core.training.world import ALONE
    from tests.cpu.jobs import submit

    run = Run(Path(submit(job, str(home))))
    session = _Session(run, StopRequest(run.stop_file), ALONE)
    prepared = session.prepare()
    model = session.load(prepared)
    trainer = session.build(model, prepared)
    session._show(model, 0, "before")
    answers = [
        event for event in map(json.loads, run.events.read_text("utf-8").splitlines()) if "answer" in event
    ]
    return {
        **flat("arguments", trainer.args.to_dict()),
        **flat("callback", _scalars(session._callback)),
        **flat("prompts", session._prompts),
        **flat("answers", [one["answer"] for one in answers]),
        **flat("rows", [trainer.train_dataset[0], len(trainer.train_dataset)]),
        **flat("model", _model(model)),
    }


def _scalars(thing: Any) -> dict[str, Any]:
    """The plain attributes of an object, and whether others are there."""
    return {
        name: value if isinstance(value, PLAIN) else value is not None for name, value in vars(thing).items()
    }


def _model(model: Any) -> dict[str, Any]:
    """Weights, what of them moves, and the ways its layers go forward."""
    moved = {name: one.requires_grad for name, one in model.named_parameters()}
    sums = [f"{float(one.float().double().sum()):.10g}" for one in model.parameters()]
    ways = sorted({type(part.forward).__name__ for part in model.modules()})
    attention = model.config._attn_implementation
    digest = hashlib.sha256(json.dumps([sums, sorted(moved.items())]).encode()).hexdigest()
    return {"weights": digest, "ways": ways, "attention": attention}


def flat(name: str, value: Any) -> Flat:
    """A nested value as dotted names and texts; folders of a run and of a home are left out."""
    if isinstance(value, dict):
        return {
            key: text for part, inner in value.items() for key, text in flat(f"{name}.{part}", inner).items()
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return flat(name, dataclasses.asdict(value))
    if name.endswith((".output_dir", ".run_name", ".logging_dir", ".job_hash", "._job_hash")):
        return {}
    value = sorted(value) if isinstance(value, set) else value
    return {name: json.dumps(value, default=str, sort_keys=True)}
