"""No field of a job is silently ignored: with each engine and strategy, its changed value turns up or it is refused.

The fields come from the spec itself (tests/leaves.py), so a new one fails here until it does something. Where a field
is looked for, the first that finds it decides:
1. what trainers, adapters, loaders and rows are given (tests/cpu/outcomes.py, `told`), by engine and strategy;
2. the real session with its trainer (`built`), which is the same code for all engines and strategies;
3. the batch script and the commands of a launcher;
4. for the parts with code of their own (data, rewards, exports, the PPO loop): that this code reads the field, and that
   a test of this part sets it. That its value does what it says is for those tests.
What an engine or strategy does not take must be refused by name.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.engines import engine_module
from core.job.checks import check
from core.job.load import check_values
from core.job.machine import CHECKOUT, Gpu, Machine
from core.launchers import launcher_module
from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_preference import rows_of
from tests.leaves import leaves, other
from tests.zygote import Zygote

GIB = 2**30
CPU = Machine("Linux", "3.11", cores=2, memory=24 * GIB, memory_free=20 * GIB)
GPUS = Machine(
    "Linux",
    "3.11",
    16,
    512 * GIB,
    500 * GIB,
    tuple(Gpu(n, "GPU", 80 * GIB, 80 * GIB, 9.0, "1") for n in range(2)),
)
STRATEGIES = engine_module("trl").STRATEGIES
WAYS = [("trl", name) for name in STRATEGIES] + [("unsloth", "none")]

# Values that the type alone does not suggest, or that would not be allowed.
VALUES: dict[str, Any] = {
    "model.attention": "eager",
    "model.template": "plain",
    "stage[dpo].loss": ["ipo"],
    "stage[dpo].loss_weights": [0.5, 2.0],
    "stage[sft].max_length": 32,
    "stage[pretrain].max_length": 32,
    "stage[grpo].num_generations": 2,
    "stage[rloo].num_generations": 2,
    "method[lora].target": ["q_proj"],
    "method[qlora].target": ["q_proj"],
    "method[lora].modules_to_save": ["lm_head"],
    "method[qlora].modules_to_save": ["lm_head"],
    "method[freeze].layers": 1,
    "method[freeze].modules": ["norm"],
    "train.epochs": 2.0,
    "train.learning_rate": 7e-4,
    "train.warmup": 5.0,
    "train.global_batch_size": 32,
    "train.scheduler": "constant",
    "evaluate.prompts": ["What is new?"],
    "hardware.precision": "bf16",
    "report_to": ["tensorboard"],
    "launcher[torchrun].endpoint": "10.0.0.1:29500",
    "launcher[torchrun].hosts": ["n1"],
    "launcher[torchrun].interface": "eth0",
    "launcher[slurm].partition": "gpu",
    "launcher[slurm].account": "lab",
    "launcher[slurm].qos": "high",
    "launcher[slurm].reservation": "night",
    "launcher[slurm].time": "2:00:00",
    "launcher[slurm].gpu_type": "h100",
    "launcher[slurm].memory": "64G",
    "launcher[slurm].constraint": "ib",
    "launcher[slurm].exclude": "n3",
    "launcher[slurm].modules": ["cuda"],
    "launcher[slurm].setup": ["source env.sh"],
    "launcher[slurm].container": "nvcr.io#nvidia/pytorch:25.09-py3",
    "launcher[slurm].mounts": ["/scratch"],
}

# What else must be said for a field to have a meaning.
GIVEN: dict[str, dict[str, Any]] = {
    "train.epochs": {"train.max_steps": None},
    "train.global_batch_size": {"train.gradient_accumulation": None},
    "train.scheduler_cycles": {"train.scheduler": "cosine_with_restarts"},
    "train.scheduler_floor": {"train.scheduler": "cosine_with_min_lr"},
    "train.scheduler_decay": {"train.scheduler": "warmup_stable_decay"},
    "stage[dpo].loss_weights": {"stage.loss": ["sigmoid", "sft"]},
    "stage[dpo].simpo_gamma": {"stage.loss": ["simpo"]},
    "stage[dpo].cpo_alpha": {"stage.loss": ["cpo"]},
    "method[freeze].modules": {"method.layers": 1},
    "launcher[torchrun].endpoint": {"hardware.nodes": 2},
    "launcher[slurm].mounts": {"launcher.container": "a:1"},
    "launcher[torchrun].hosts": {"hardware.nodes": 2, "launcher.endpoint": "10.0.0.1:29500"},
    "launcher[torchrun].ssh_port": {"hardware.nodes": 2, "launcher.hosts": ["n1"]},
    "hardware.offload": {"hardware.devices": 2, "hardware.strategy": "deepspeed-2"},
    "hardware.strategy": {"hardware.devices": 2},
    "engine[unsloth].checkpointing": {"train.gradient_checkpointing": True},
}

# Found in another form than the value itself; in what form.
DERIVED = {
    "train.epochs": "the steps of the run, where nothing else names them",
    "train.warmup": "warmup steps",
    "train.scheduler_decay": "steps of the fall",
    "train.padding_free": "the decoder's forward, Unsloth's variable",
    "train.watchdog": "whether the callback has one",
    "train.fused": "the forward of layers with LoRA",
    "train.global_batch_size": "batches summed before a step",
    "train.gradient_accumulation": "also the size of a batch of answers",
    "stage[rloo].algorithm": "normalize_advantages",
    "stage[grpo].vllm": "use_vllm and vllm_mode",
    "stage[rloo].vllm": "use_vllm and vllm_mode",
    "stage[dpo].reference": "precompute_ref_log_probs",
    "stage[dpo].cpo_alpha": "0 for simpo",
    "method[lora].init": "how the adapter starts",
    "hardware.precision": "bf16 and fp16",
    "hardware.strategy": "the command and the trainer's settings",
    "hardware.devices": "the command",
    "engine[unsloth].checkpointing": "use_gradient_checkpointing: true or unsloth",
    "method[qlora].bits": "load_in_8bit",
    "model.template": "the token ids of the rows",
    "method[freeze].layers": "which weights move",
    "method[freeze].modules": "which weights move",
}

# Read by code of their own: which, by the beginning of the path.
READ: dict[str, tuple[str, ...]] = {
    "data.": ("data", "core/job/spec.py", "core/job/plan.py"),
    "rewards[": ("core/rewards", "core/training/online.py"),
    "export[": ("core/export", "core/training/export", "core/training/exporting.py", "core/runs"),
    "stage[ppo]": ("core/training/ppo", "core/training/rows.py"),
    "launcher[torchrun]": ("core/nodes", "core/launchers/torchrun.py"),
    "launcher[local]": ("core/launchers",),
}

# Where the tests of those parts stand, which must set each field to something.
TESTED: dict[str, tuple[str, ...]] = {
    "data.": ("tests/unit/data", "tests/unit/test_row_checks.py", "tests/cpu"),
    "rewards[": ("tests/unit/rewards",),
    "export[": (
        "tests/unit/test_export_checks.py",
        "tests/cpu/test_export.py",
        "tests/cpu/test_export_process.py",
    ),
    "stage[ppo]": ("tests/cpu/test_ppo.py",),
}

# Proven by a test of its own, which must be there.
PROVEN = {
    "schema_version": "tests/unit/test_load.py",
    "name": "tests/unit/runs",
    "model.name": "tests/cpu/test_sft.py",
    "model.revision": "tests/unit",
    "model.adapter": "tests/cpu/test_methods.py",
    "stage[reward].margin": "tests/cpu/test_preference.py",
    "evaluate.max_new_tokens": "tests/cpu/test_sft.py",
    "hardware.deepspeed_config": "tests/unit",
    "hardware.nodes": "tests/unit",
}
PATHS = dict(leaves())


def test_tables_name_real_fields_only():
    named = {*VALUES, *GIVEN, *DERIVED, *PROVEN}
    assert named <= PATHS.keys(), named - PATHS.keys()
    for path, place in PROVEN.items():
        words = path.rpartition(".")[2]
        files = [CHECKOUT / place] if (CHECKOUT / place).is_file() else (CHECKOUT / place).rglob("test_*.py")
        assert any(re.search(rf"\b{words}\b", file.read_text("utf-8")) for file in files), path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A small file for every stage."""
    folder = tmp_path_factory.mktemp("rows")
    texts = [
        {"text": f"Lamp {n} is lit at dusk, and the weather goes into a book. " * (1 + n % 4)}
        for n in range(24)
    ]
    prompts = [{"prompt": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(24)]
    rows = {
        "sft": chats(24),
        "pretrain": texts,
        **{stage: rows_of(stage, 24) for stage in ("dpo", "reward", "kto", "orpo")},
        **dict.fromkeys(("grpo", "rloo", "ppo"), prompts),
    }
    return {stage: write_rows(folder / f"{stage}.jsonl", some) for stage, some in rows.items()}


def job(path: str, model: str, data: dict[str, str], engine: str, strategy: str) -> dict[str, Any]:
    """The job in which a leaf is changed: its own stage or method, and what it needs to mean something."""
    part, kind = kind_of(path)
    stage = kind if part == "stage" else "sft"
    plain: dict[str, Any] = {
        "model": {"name": model},
        "data": {"path": data[stage], "eval": 0.25},
        "stage": {"name": stage},
        "method": {"name": kind if part == "method" else "lora"},
        "train": {"max_steps": 8, "batch_size": 4, "gradient_accumulation": 2, "warmup": 0.0},
        "hardware": {},
        "evaluate": {"prompts": ["What is 1 and 1?"]},
        "engine": {"name": engine},
        "launcher": {"name": kind if part == "launcher" else "local"},
    }
    if stage in ("grpo", "rloo", "ppo"):
        plain |= {"rewards": ["length"], "data": {"path": data[stage]}}
    if stage in ("grpo", "rloo"):
        plain["stage"]["num_generations"] = 4
    if strategy != "none":
        plain["hardware"] |= {"devices": 2, "strategy": strategy}
    for name, value in GIVEN.get(path, {}).items():
        put(plain, name, value)
    return plain


def kind_of(path: str) -> tuple[str, str]:
    """`stage[sft].loss` is (stage, sft); (train, "") for a part that is the same in all jobs."""
    found = re.match(r"(\w+)\[(\w+)\]", path)
    return (found[1], found[2]) if found else (path.partition(".")[0], "")


def put(plain: dict[str, Any], name: str, value: Any) -> None:
    """Set a dotted field of a plain job."""
    part, _, field = name.partition(".")
    if field:
        plain[part] = {**plain[part], field: value}
    else:
        plain[part] = value


def value_of(path: str) -> Any:
    """What the leaf is changed to. Fails for a new field whose type does not suggest a value: name one in VALUES."""
    try:
        return VALUES[path] if path in VALUES else other(PATHS[path])
    except LookupError:
        pytest.fail(f"{path}: give a value in VALUES, and see that it changes something")


def changed(path: str, base: dict[str, Any]) -> dict[str, Any]:
    """The job with the leaf changed."""
    plain = {**base}
    put(plain, re.sub(r"\[\w*\]", "", path), value_of(path))
    return plain


def of_job(path: str) -> bool:
    """Whether a leaf is looked for in what the job becomes, not in code of its own."""
    return (
        path not in PROVEN
        and not any(path.startswith(one) for one in READ)
        and kind_of(path)[0] != "launcher"
    )


def takes(path: str, engine: str) -> bool:
    """Whether the leaf belongs to a stage, method or engine that this engine has; the others are refused as such."""
    part, kind = kind_of(path)
    module = engine_module(engine)
    return {"stage": kind in module.STAGES, "method": kind in module.METHODS, "engine": kind == engine}.get(
        part, True
    )


@pytest.fixture(scope="module")
def found(zygote: Zygote, tiny: str, data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What every leaf changes, by engine and strategy: the names and values of what is told."""
    asked = [(path, *way) for path in PATHS if of_job(path) for way in WAYS if takes(path, way[0])]
    pairs = []
    for path, *way in asked:
        base = job(path, tiny, data, *way)
        pairs.append({"how": "told", "base": base, "changed": changed(path, base)})
    answers = zygote.call(
        "tests.cpu.outcomes:changes", pairs=pairs, home=str(tmp_path_factory.mktemp("told"))
    )
    return dict(zip(asked, answers, strict=True))


@pytest.fixture(scope="module")
def built(
    found: Any, zygote: Zygote, tiny: str, data: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The same by the real session, for the leaves that are in no settings; it is one code for every way."""
    asked = [path for path in PATHS if of_job(path) and takes(path, "trl") and not found[path, "trl", "none"]]
    pairs = []
    for path in asked:
        base = job(path, tiny, data, "trl", "none")
        pairs.append({"how": "built", "base": base, "changed": changed(path, base)})
    answers = zygote.call(
        "tests.cpu.outcomes:changes", pairs=pairs, home=str(tmp_path_factory.mktemp("built"))
    )
    return dict(zip(asked, answers, strict=True))


def refused(path: str, plain: dict[str, Any], machine: Machine, home: Path) -> bool:
    """Whether the checks refuse a job, naming the field."""
    field = re.sub(r"\[\w*\]", "", path)
    asked = check_values(plain)
    return any(one.level == "error" and one.field == field for one in check(asked, machine, home))


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_every_field_turns_up_or_is_refused(way, found, built, tiny, data, tmp_path):
    ignored, counted = [], 0
    for path in PATHS:
        if not (of_job(path) and takes(path, way[0])):
            continue
        counted += 1
        names = found[path, *way] or for_engine(built.get(path, {}), way[0])
        if names and "refused" not in names and (path in DERIVED or _holds(names, value_of(path))):
            continue
        new = changed(path, job(path, tiny, data, *way))
        machine = GPUS if way[1] != "none" or path == "hardware.offload" else CPU
        if not refused(path, new, machine, tmp_path):
            ignored.append(f"{path}: {value_of(path)!r} is nowhere in {names}")
    assert not ignored, "\n".join(ignored)
    assert counted > 60


def for_engine(names: dict[str, list[str]], engine: str) -> dict[str, list[str]]:
    """What of the session on engine trl is the same code on another engine: all but its models and trainers."""
    ours = ("callback.", "prompts", "answers", "rows")
    return {name: value for name, value in names.items() if engine == "trl" or name.startswith(ours)}


def _holds(names: dict[str, list[str]], value: Any) -> bool:
    """Whether one of the changed values is the value, or holds it."""
    texts = [text for values in names.values() for text in values]
    return any(json.dumps(value) == text or json.dumps(value).strip('"') in text for text in texts)


@pytest.mark.parametrize("path", [path for path in PATHS if path.startswith("launcher[")])
def test_every_field_of_a_launcher_is_in_its_script_or_read_by_its_code(path, tiny, data):
    base = job(path, tiny, data, "trl", "none")
    before, after = (check_values(one) for one in (base, changed(path, base)))
    launcher = launcher_module(kind_of(path)[1])
    texts = [launcher.steps(one, ["train"]) for one in (before, after)]
    assert texts[0] != texts[1] or _read(path)


@pytest.mark.parametrize("path", [path for path in PATHS if any(path.startswith(one) for one in READ)])
def test_every_field_with_code_of_its_own_is_read_by_it(path):
    assert _read(path), f"nothing reads {path}"


@pytest.mark.parametrize("path", [path for path in PATHS if any(path.startswith(one) for one in TESTED)])
def test_every_field_with_code_of_its_own_is_set_by_a_test_of_its_part(path):
    name = path.rpartition(".")[2]
    places = next(places for beginning, places in TESTED.items() if path.startswith(beginning))
    sets = re.compile(rf"""(?<![\w.]){name}["']?(: |=)(?!=)""")
    assert any(sets.search(text) for place in places for text in _texts(place)), f"no test sets {path}"


@cache
def _texts(place: str) -> list[str]:
    root = CHECKOUT / place
    return [file.read_text("utf-8") for file in ([root] if root.is_file() else sorted(root.rglob("*.py")))]


def _read(path: str) -> bool:
    """Whether the code of a part reads a field: as an attribute of something, or by its name."""
    name = path.rpartition(".")[2]
    places = next((places for beginning, places in READ.items() if path.startswith(beginning)), ("core",))
    return any(name in names for place in places for names in _names(place))


@cache
def _names(place: str) -> list[set[str]]:
    """The names each file reads: attributes (`spec.rank`), and texts in quotes ("rank")."""
    return [
        set(re.findall(r"\.(\w+)", text)) | set(re.findall(r"[\"'](\w+)[\"']", text))
        for text in _texts(place)
    ]


def test_an_engine_without_a_stage_or_method_is_refused_with_one_that_has_it(tiny, data, tmp_path):
    for part, known in (
        ("stage", engine_module("unsloth").STAGES),
        ("method", engine_module("unsloth").METHODS),
    ):
        kinds = {kind_of(path)[1] for path in PATHS if path.startswith(f"{part}[")} - set(known)
        assert kinds
        for kind in kinds:
            plain = job(f"{part}[{kind}].x", tiny, data, "unsloth", "none")
            told = [
                one.message for one in check(check_values(plain), CPU, tmp_path) if one.field == "engine.name"
            ]
            assert any(f"does not run {part} {kind}; choose engine trl" in text for text in told)
