"""Engine auto: what is chosen on which machine, by the forecast, and why. Machines and models are plain data."""

from __future__ import annotations

from typing import Any

import pytest

from core.cli import main
from core.job.checks import check
from core.job.choose import choose
from core.job.load import parse_job
from core.job.machine import Gpu, Machine
from core.job.plan import make_plan
from core.job.shape import ModelShape, from_config
from tests.unit.test_forecast import LLAMA_3_8B

GIB = 2**30
SMALL = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "135m": SMALL,
    "1b": {
        **LLAMA_3_8B,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "tie_word_embeddings": True,
    },
    "8b": LLAMA_3_8B,
    "70b": {
        **LLAMA_3_8B,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
    "8x7b": {**LLAMA_3_8B, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
}
TRL, UNSLOTH, DEEPSPEED = ("trl",), ("trl", "unsloth"), ("trl", "deepspeed")
ALL = ("trl", "unsloth", "deepspeed")


def shape(name: str) -> ModelShape:
    found = from_config(CONFIGS[name])
    assert found is not None
    return found


def machine(gpus: str, memory: int = 512) -> Machine:
    """`8x80` is eight GPUs of 80 GiB, `0` none; `memory` is the machine's, in GiB."""
    count, _, size = gpus.partition("x")
    cards = tuple(
        Gpu(place, "GPU", int(size) * GIB, int(size) * GIB, 8.0, "1") for place in range(int(count))
    )
    return Machine("Linux", "3.11", cores=16, memory=memory * GIB, memory_free=memory * GIB, gpus=cards)


def job(stage: str, method: str, more: str = "") -> Any:
    return parse_job(
        f"model: org/model\ndata: rows.jsonl\nstage: {stage}\nmethod: {method}\nengine: auto\n{more}\n"
    )


# what is asked; where; what is installed; what is chosen: engine, devices, strategy, offload; words of the reason
SITUATIONS: list[tuple[tuple[str, ...], str, tuple[str, ...], tuple[Any, ...], str]] = [
    # no GPU
    (("135m", "sft", "lora"), "0", ALL, ("trl", None, None, False), "without a GPU, Unsloth has no kernels"),
    (("135m", "ppo", "full"), "0", ALL, ("trl", None, None, False), "without a GPU"),
    (("1b", "sft", "lora", "hardware: {devices: 2}"), "0", ALL, ("trl", 2, None, False), "ddp on 2 CPU proc"),
    # one GPU
    (("8b", "sft", "lora"), "1x24", ALL, ("unsloth", None, None, False), "21.2 GiB of one GPU's 24.0 GiB"),
    (("8b", "sft", "lora"), "1x24", TRL, ("trl", None, None, False), "factory env install unsloth"),
    (("8b", "sft", "qlora"), "1x16", UNSLOTH, ("unsloth", None, None, False), "12.4 GiB"),
    (("70b", "sft", "qlora"), "1x80", ALL, ("unsloth", None, None, False), "70.6 billion weights"),
    (("8b", "dpo", "qlora"), "1x80", ALL, ("unsloth", None, None, False), "dpo with qlora"),
    (("8b", "grpo", "lora"), "1x80", ALL, ("unsloth", None, None, False), "grpo with lora"),
    (("8b", "kto", "lora"), "1x80", ALL, ("trl", None, None, False), "Unsloth does not run stage kto"),
    (("8b", "sft", "{name: lora, dora: true}"), "1x80", ALL, ("trl", None, None, False), "method.dora"),
    (("1b", "sft", "full"), "1x80", ALL, ("trl", None, None, False), "Unsloth is for adapters"),
    (("1b", "sft", "freeze"), "1x24", ALL, ("trl", None, None, False), "training the last layers"),
    (("8b", "sft", "full"), "1x80", ALL, ("trl", None, "deepspeed-3", True), "141 GiB without sharing"),
    (("8b", "sft", "full"), "1x80", UNSLOTH, ("trl", None, None, False), "no way of doing sft"),
    # several GPUs: one of them where it is enough
    (("8b", "sft", "lora"), "8x80", ALL, ("unsloth", None, None, False), "one GPU's 80.0 GiB"),
    (("8b", "sft", "full"), "8x80", ALL, ("trl", 8, "deepspeed-2", False), "58.3 GiB of each GPU's 80.0 GiB"),
    (("8b", "sft", "full"), "8x80", UNSLOTH, ("trl", 8, "fsdp2", False), "factory env install deepspeed"),
    (("70b", "sft", "lora"), "8x80", ALL, ("trl", 8, "deepspeed-3", False), "138 GiB without sharing"),
    (("70b", "sft", "full"), "8x80", ALL, ("trl", None, None, False), "the smallest takes 155 GiB of each"),
    (("70b", "sft", "qlora"), "4x24", ALL, ("trl", None, None, False), "no way of doing sft with qlora"),
    # what the user set stays
    (("8b", "sft", "lora", "hardware: {devices: 4}"), "8x80", ALL, ("trl", 4, None, False), "ddp on 4 GPUs"),
    (
        ("8b", "sft", "full", "hardware: {devices: [0, 1, 2, 3]}"),
        "8x80",
        ALL,
        ("trl", [0, 1, 2, 3], "deepspeed-2", False),
        "deepspeed-2 on 4 GPUs",
    ),
    (
        ("8b", "sft", "lora", "hardware: {devices: 4, strategy: deepspeed-3}"),
        "8x80",
        ALL,
        ("trl", 4, "deepspeed-3", False),
        "deepspeed-3 on 4 GPUs",
    ),
    (
        ("8b", "sft", "full", "hardware: {strategy: none}"),
        "8x80",
        ALL,
        ("trl", None, "none", False),
        "no way of doing",
    ),
    (
        ("8b", "sft", "full", "hardware: {offload: true}"),
        "1x80",
        DEEPSPEED,
        ("trl", None, "deepspeed-3", True),
        "states in the machine's memory",
    ),
    (
        ("8b", "sft", "lora", "hardware: {devices: [2], strategy: none}"),
        "8x80",
        ALL,
        ("unsloth", [2], "none", False),
        "engine unsloth",
    ),
]


def test_there_are_situations_enough():
    assert len(SITUATIONS) >= 20


@pytest.mark.parametrize(
    ("asked", "where", "here", "chosen", "words"),
    SITUATIONS,
    ids=[
        f"{' '.join(asked)}, {where}, {'+'.join(here)}".replace("hardware: ", "")
        for asked, where, here, *_ in SITUATIONS
    ],
)
def test_the_forecast_chooses(asked, where, here, chosen, words):
    found = choose(job(*asked[1:]), machine(where), shape(asked[0]), None, here)
    hardware = found.job.hardware
    assert (found.job.engine.name, hardware.devices, hardware.strategy, hardware.offload) == chosen
    assert words in found.reason and found.reason.startswith(f"engine {chosen[0]}") and found.planned == ()
    assert found.reason.endswith(".") and ". " not in found.reason


@pytest.mark.parametrize(
    ("asked", "where", "memory", "planned", "strategy"),
    [
        (("8b", "grpo", "full"), "8x80", 512, "engine openrlhf", "deepspeed-2"),
        (("8b", "ppo", "full"), "8x80", 512, "engine openrlhf", None),
        (("70b", "grpo", "full"), "8x80", 512, "engine verl", None),
        (("8x7b", "grpo", "full"), "8x80", 512, "engine verl", None),
        (("8x7b", "rloo", "full"), "8x80", 2048, "engine verl", "deepspeed-3"),
    ],
)
def test_engines_that_the_field_takes_for_large_reinforcement_learning_are_named_as_planned(
    asked, where, memory, planned, strategy
):
    found = choose(job(*asked[1:]), machine(where, memory), shape(asked[0]), None, ALL)
    assert (found.job.engine.name, found.job.hardware.strategy, found.planned) == (
        "trl",
        strategy,
        (planned,),
    )
    assert "is planned here" in found.reason


def test_states_that_the_machines_own_memory_cannot_hold_are_no_way_out():
    """Alone on a GPU of 80 GiB full training of 8 billion weights fits only with offload: 16 bytes a weight there."""
    found = [
        choose(job("sft", "full"), machine("1x80", memory), shape("8b"), None, ALL) for memory in (64, 512)
    ]
    assert [one.job.hardware.offload for one in found] == [False, True]
    assert "no way of doing sft with full training" in found[0].reason


def test_without_the_models_files_there_is_no_forecast_and_plain_trl():
    found = choose(job("sft", "lora"), machine("8x80"), None, None, ALL)
    assert found.job.engine.name == "trl" and "nothing of the model" in found.reason


def test_the_same_rows_can_decide_otherwise():
    """The forecast of this job, not a table of sizes: short rows fit where long ones do not."""
    long = job("{name: sft, max_length: 65536}", "lora")
    short = job("{name: sft, max_length: 256}", "lora")
    engines = [choose(one, machine("2x24"), shape("8b"), None, ALL).job.engine.name for one in (long, short)]
    assert engines == ["trl", "unsloth"]


def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "What is 1 and 1?", "completion": "2"}\n' * 8, "utf-8")
    return path


def test_plan_and_check_hold_the_real_engine_and_say_why(tmp_path, capsys):
    text = f"model: smollm2-135m\ndata: {rows(tmp_path)}\nstage: sft\nengine: auto\n"
    asked, here = parse_job(text), machine("1x24")
    plan = make_plan(asked, tmp_path, here)
    assert plan.engine == "trl" and plan.job["engine"] == {"name": "trl"} == plan.job_spec.engine.model_dump()
    assert plan.engine_reason and "factory env install unsloth" in plan.engine_reason
    (told,) = [one for one in check(asked, here, tmp_path) if one.code == "engine_chosen"]
    assert told.message == plan.engine_reason and told.level == "note"
    file = tmp_path / "job.yaml"
    file.write_text(text, "utf-8")
    assert main(["--home", str(tmp_path), "plan", str(file), "--quick"]) == 0
    assert "\nengine    trl: sft with lora of 135 million weights takes" in capsys.readouterr().out


def test_a_named_engine_is_never_changed(tmp_path):
    asked = parse_job(f"model: smollm2-135m\ndata: {rows(tmp_path)}\nstage: sft\nengine: trl\n")
    plan = make_plan(asked, tmp_path, machine("1x24"))
    assert plan.engine == "trl" and plan.engine_reason is None
