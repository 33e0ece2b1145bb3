"""The forecast: published figures, measured peaks, what it says of a job, and what it costs to ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import forecast as benchmark
from core.job.calibration import learn, pace
from core.job.checks import check, insisted, refuse_errors
from core.job.fit import machine_with, read_gpus, ways
from core.job.forecast import Lengths, batch_of, changed_job, cheapest_change, forecast, judge, place_of
from core.job.load import parse_job
from core.job.machine import Gpu, Machine
from core.job.memory import (
    MIXED,
    Memory,
    Place,
    Strategy,
    block_bytes,
    deepspeed_estimate,
    frozen_copies,
    heaviest_batch,
    memory,
    model_states,
    optimizer_bytes,
    trained_weights,
)
from core.job.models import EMBEDDED, ModelPlace, locate
from core.job.optimizers import optimizer_names
from core.job.presets import resolve
from core.job.shape import ModelShape, from_config, from_sizes, shape_of
from data.errors import FactoryError

GB, GIB, MIB = 10**9, 2**30, 2**20
LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
CPU = Machine("Linux", "3.11", cores=2, memory=24 * GIB, memory_free=20 * GIB)
ROOT = Path(__file__).resolve().parents[2]


def llama() -> ModelShape:
    shape = from_config(LLAMA_3_8B)
    assert shape is not None
    return shape


def smollm() -> ModelShape:
    shape = from_config(EMBEDDED["smollm2-135m"].config)
    assert shape is not None
    return shape


def job(text: str = "", *, stage: str = "sft", gpu: bool = False, parameters: int = 8 * GB):
    asked = parse_job(f"model: smollm2-135m\ndata: rows.jsonl\nstage: {stage}\n{text}\n")
    return resolve(asked, parameters=parameters, gpu=gpu).job


# Published figures


@pytest.mark.parametrize(
    ("strategy", "gigabytes"),
    [("none", 120.0), ("deepspeed-1", 31.4), ("deepspeed-2", 16.6), ("deepspeed-3", 1.9)],
)
def test_model_states_are_those_of_the_zero_paper(strategy, gigabytes):
    """Figure 1 of arXiv 1910.02054: 7.5 billion weights on 64 GPUs."""
    states = model_states(7.5e9, MIXED, Strategy(strategy, 64))
    assert sum(states.values()) / GB == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("billions", "layer", "stage", "figures"),
    [
        (7, 0, 2, {1: 130, 8: 28, 16: 20, 64: 15}),
        (70, 0, 2, {1: 1304, 8: 277, 16: 204, 64: 149}),
    ],
)
def test_deepspeed_estimators_say_the_same(billions, layer, stage, figures):
    """estimate_zero2_model_states_mem_needs: 2 bytes a weight, and 18 shared out; GiB for each GPU."""
    for devices, gib in figures.items():
        assert deepspeed_estimate(billions * GB, layer, stage, devices) / GIB == pytest.approx(gib, abs=0.6)


@pytest.mark.parametrize(("devices", "gib"), [(1, 118), (8, 15.2), (16, 7.8), (64, 2.3)])
def test_deepspeed_stage_3_is_18_bytes_shared_out_and_a_gathered_layer(devices, gib):
    layer = 0.13e9  # the largest layer of a 7B model; the estimator adds 4 bytes for each of its weights
    assert deepspeed_estimate(7 * GB, layer, 3, devices) / GIB == pytest.approx(gib, rel=0.06)


def test_four_70b_models_weigh_560_gb_by_their_weights_alone():
    assert 4 * model_states(70e9, MIXED, Strategy())["weights"] == 560 * GB


def test_llama_3_8b_has_its_published_numbers():
    shape = llama()
    assert shape.parameters == 8_030_261_248
    assert shape.adapter(16, "all-linear") == 41_943_040
    assert shape.kv_bytes() == 128 * 1024
    assert shape.adapter(16, ["q_proj", "v_proj"]) == 32 * 16 * (8192 + 5120)


def test_lora_takes_16_bytes_for_each_adapter_weight():
    """r 16 on every linear layer of Llama-3-8B: 0.67 GB of weights, gradients and moments."""
    asked = job("method: lora", gpu=True)
    place = Place(gpu=True, half=True)
    parts = memory(asked, llama(), heaviest_batch(asked), place).parts
    adapter = parts["weights"] - 2 * llama().parameters + 4 * trained_weights(asked, llama())
    assert (adapter + parts["optimizer"]) / GB == pytest.approx(0.67, abs=0.01)


def test_a_70b_base_in_nf4_is_36_gb():
    shape = llama()
    asked = job("method: qlora", gpu=True)
    parts = memory(asked, shape, heaviest_batch(asked), Place(gpu=True, half=True)).parts
    adapters = 4 * trained_weights(asked, shape)
    quantised = parts["weights"] - adapters - 2 * (shape.parameters - shape.in_blocks)
    assert quantised / shape.in_blocks * 70 == pytest.approx(36, abs=0.2)


def test_full_training_on_one_gpu_is_18_bytes_a_weight_with_autocast():
    asked = job("method: full", gpu=True)
    parts = memory(asked, llama(), heaviest_batch(asked), Place(gpu=True, half=True)).parts
    assert (parts["weights"] + parts["optimizer"] + 4 * llama().parameters) / llama().parameters == 18


# Measured peaks


MEASURED: dict[str, dict[str, Any]] = json.loads((ROOT / "benchmarks" / "forecast.json").read_text("utf-8"))


@pytest.mark.parametrize("name", benchmark.SETTINGS)
def test_the_forecast_is_within_15_percent_of_the_measured_peak(name, tmp_path):
    setting, seen = benchmark.SETTINGS[name], MEASURED[name]
    asked = parse_job(json.dumps(benchmark.job_of(setting, "smollm2-135m", tmp_path / "rows.jsonl")))
    resolved = resolve(asked, parameters=None, gpu=False).job
    shape = smollm() if "model" not in setting else from_config(seen["config"])
    told = forecast(
        resolved, shape, CPU, tmp_path, lengths=Lengths(seen["longest"], seen["mean"], 16, "counted")
    )
    assert told.memory_total == pytest.approx(seen["peak"], rel=0.15)


def test_half_of_the_measured_settings_never_helped_to_fit():
    assert sum(bool(one.get("held_out")) for one in benchmark.SETTINGS.values()) == 6
    assert set(MEASURED) == set(benchmark.SETTINGS)


# Shapes


def test_the_embedded_model_has_as_many_weights_as_its_config_says():
    assert smollm().parameters == EMBEDDED["smollm2-135m"].parameters


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}, 0.124),
        (
            {
                "model_type": "mixtral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "tie_word_embeddings": False,
            },
            46.7,
        ),
        ({"text_config": LLAMA_3_8B, "vision_config": {"hidden_size": 1024}}, 8.03),
    ],
)
def test_weights_are_counted_from_a_config(config, billions):
    shape = from_config(config)
    assert shape is not None and shape.parameters / GB == pytest.approx(billions, rel=0.01)


def test_experts_that_are_not_chosen_do_not_work():
    config = {**LLAMA_3_8B, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
    shape = from_config(config)
    assert shape is not None and shape.active / GB == pytest.approx(12.9, rel=0.01)


def test_an_unknown_architecture_is_measured_by_its_tensors():
    sizes = {"emb.weight": (1000, 64), "head.weight": (1000, 64), "norm.weight": (64,)}
    sizes |= {f"blocks.{n}.mix.weight": (128, 64) for n in range(3)}
    shape = from_sizes(sizes)
    assert (shape.parameters, shape.layers, shape.hidden, shape.vocab) == (152_640, 3, 64, 1000)
    assert shape.adapter(4, "all-linear") == 3 * 4 * 192 and not shape.from_config


@pytest.mark.parametrize(
    "config", [{}, {"hidden_size": "big", "num_hidden_layers": 2}, {"hidden_size": -1, "vocab_size": True}]
)
def test_a_config_without_sizes_has_no_shape(config):
    assert from_config(config) is None


def test_a_model_that_is_not_here_has_no_shape():
    assert shape_of(ModelPlace("hub", "org/name", None)) is None


# What it says of a job


def total(text: str = "", *, stage: str = "sft", gpu: bool = False, place: Place | None = None) -> float:
    asked = job(text, stage=stage, gpu=gpu)
    return memory(asked, llama(), heaviest_batch(asked), place or Place(gpu=gpu, half=gpu)).total


def test_less_is_less():
    base = total("method: lora", gpu=True)
    assert total("method: qlora", gpu=True) < base < total("method: full", gpu=True)
    assert total("method: lora\ntrain: {batch_size: 1}", gpu=True) < base
    assert total("method: lora\ntrain: {gradient_checkpointing: false}", gpu=True) > base
    assert total("method: {name: lora, rank: 256}", gpu=True) > base
    assert total("method: full\ntrain: {optimizer: adamw_bnb_8bit}", gpu=True) < total(
        "method: full", gpu=True
    )


def test_strategies_share_out_more_and_more():
    asked = job("method: full", gpu=True)
    sizes = [
        memory(asked, llama(), heaviest_batch(asked), Place(True, True, Strategy(name, 8))).total
        for name in ("ddp", "deepspeed-1", "deepspeed-2", "deepspeed-3")
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2 * sizes[3]
    offloaded = memory(
        asked, llama(), heaviest_batch(asked), Place(True, True, Strategy("deepspeed-3", 8, True))
    )
    assert offloaded.total < sizes[3] and offloaded.host > 8 * llama().parameters


@pytest.mark.parametrize(
    ("stage", "method", "copies"),
    [
        ("sft", "full", 0),
        ("dpo", "full", 1),
        ("dpo", "lora", 0),
        ("{name: dpo, reference: precomputed}", "full", 0),
        ("{name: dpo, loss: [simpo]}", "full", 0),
        ("kto", "full", 1),
        ("orpo", "full", 0),
        ("{name: grpo, beta: 0.04}", "full", 1),
        ("grpo", "full", 0),
        ("rloo", "full", 1),
        ("ppo", "full", 1),
        ("ppo", "lora", 0),
        ("reward", "full", 0),
    ],
)
def test_frozen_copies_are_those_the_trainer_loads(stage, method, copies):
    asked = job(f"method: {method}", stage=stage)
    assert frozen_copies(asked, smollm(), Place(gpu=False)) == copies * 4 * smollm().parameters


def test_every_optimizer_has_a_size():
    assert all(0 <= optimizer_bytes(name) <= 12 for name in optimizer_names())
    assert optimizer_bytes("adamw_torch_fused") == 8


def test_a_batch_without_padding_is_between_its_mean_and_its_longest():
    asked = job("train: {batch_size: 8}")
    batch = heaviest_batch(asked, longest=512, mean=100)
    assert 8 * 100 < batch.tokens < 8 * 512
    padded = heaviest_batch(job("train: {batch_size: 8, padding_free: false}"), longest=512, mean=100)
    assert padded.tokens == 8 * 512


def test_the_cheapest_change_fits_and_a_smaller_one_would_not():
    asked = job("train: {batch_size: 16, gradient_accumulation: 1}", gpu=True)
    place = Place(gpu=True, half=True)
    needed = memory(asked, llama(), heaviest_batch(asked), place).total
    change = cheapest_change(asked, llama(), place, None, needed * 0.8)
    assert change is not None and set(change) == {"train.batch_size", "train.gradient_accumulation"}
    changed = changed_job(asked, change)
    assert judge(memory(changed, llama(), batch_of(changed, None), place).total, needed * 0.8) == "fits"
    assert change["train.batch_size"] * change["train.gradient_accumulation"] == 16


def test_full_training_that_never_fits_becomes_an_adapter():
    asked = job("method: full\ntrain: {batch_size: 1}", gpu=True)
    change = cheapest_change(asked, llama(), Place(gpu=True, half=True), None, 30 * GIB)
    assert change is not None and change["method"] == "lora"
    assert cheapest_change(asked, llama(), Place(gpu=True, half=True), None, GIB) is None


@pytest.mark.parametrize(
    ("precision", "compute", "half"), [("auto", 9.0, True), ("auto", 7.5, False), ("fp32", 9.0, False)]
)
def test_arithmetic_is_in_16_bits_where_the_gpu_has_them(precision, compute, half):
    machine = machine_with(1, 80 * GIB)
    machine = Machine("", "", 1, 0, 0, gpus=(Gpu(0, "G", 80 * GIB, 80 * GIB, compute, ""),))
    assert place_of(job(f"hardware: {{precision: {precision}}}", gpu=True), machine).half is half


@pytest.mark.parametrize("text", ["train: {batch_size: 65536, gradient_accumulation: 65536}"])
def test_absurd_values_are_refused_by_arithmetic_with_the_change(text, tmp_path):
    told = forecast(job(text), smollm(), CPU, tmp_path)
    assert told.verdict == "too large" and told.change is not None


# Refusal before a start


UNSLOTH = "engine: unsloth\ntrain: {gradient_checkpointing: true}\nmethod: lora"
"""Two rows of 2048 tokens: an input of a block has 32 MiB in 16 bits, a power of two."""


def unsloth(text: str = UNSLOTH, room: float = 80 * GIB) -> Memory:
    asked = job(text, stage="{name: sft, max_length: 2048}", gpu=True)
    asked = asked.model_copy(update={"train": asked.train.model_copy(update={"batch_size": 2})})
    return memory(asked, llama(), heaviest_batch(asked), Place(gpu=True, half=True, room=room))


def test_unsloth_keeps_the_inputs_of_blocks_in_the_machines_memory():
    moved, plain = unsloth(), unsloth(UNSLOTH.replace("unsloth", "{name: unsloth, checkpointing: plain}"))
    trl = unsloth(UNSLOTH.replace("unsloth", "trl"))
    assert moved.host == 31 * 32 * MIB and plain.host == trl.host == 0.0
    held = [one.parts["activations"] for one in (moved, plain, trl)]
    assert plain.parts["activations"] - moved.parts["activations"] == pytest.approx(1.1 * 29 * 32 * MIB)
    assert held == sorted(held), "its blocks keep less than peft's"


def test_unsloths_adapters_keep_what_their_kernels_save():
    """Inputs of norms and projections; queries and attention's answer; keys and values; two of the MLP's."""
    asked = job("method: lora\nengine: unsloth", gpu=True)
    place = Place(gpu=True, half=True)
    assert block_bytes(asked, llama(), place, 2048) == 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 2 * 14336)
    cpu, other = Place(gpu=False), job("method: lora")
    assert block_bytes(asked, llama(), cpu, 2048) == block_bytes(other, llama(), cpu, 2048), (
        "no kernels there"
    )


def test_unsloths_loss_takes_half_of_what_is_free_and_never_more_than_4_gib():
    wide, narrow = unsloth(room=80 * GIB).parts, unsloth(room=20 * GIB).parts
    assert wide["logits"] == 4 * GIB
    held = sum(narrow[name] for name in ("weights", "activations", "framework"))
    assert narrow["logits"] == pytest.approx((20 * GIB - held) / 2)
    assert unsloth(room=10 * GIB).parts["logits"] == 0.0


@pytest.mark.parametrize(
    ("gib", "told"),
    [(1, ("host_memory_too_small", "error")), (2.1, ("host_memory_tight", "warning")), (64, None)],
)
def test_offload_that_the_machines_own_memory_cannot_hold_is_refused(tmp_path, gib, told):
    """16 bytes for each of the 135 million weights, as DeepSpeed estimates: 2 GiB."""
    rows, memory = _rows(tmp_path / "rows.jsonl", 40), int(gib * GIB)
    card = Gpu(0, "GPU", 80 * GIB, 80 * GIB, 8.0, "1")
    here = Machine("Linux", "3.11", cores=8, memory=memory, memory_free=memory, gpus=(card,))
    asked = parse_job(
        f"model: smollm2-135m\ndata: {rows}\nstage: sft\nmethod: full\n"
        "hardware: {devices: 1, strategy: deepspeed-2, offload: true}\n"
    )
    found = [one for one in check(asked, here, tmp_path / "home") if one.code.startswith("host_memory")]
    assert [(one.code, one.level) for one in found] == ([told] if told else [])
    for one in found:
        assert "about 2.0 GiB of states in the machine's memory (hardware.offload)" in one.message
        assert one.field == "hardware.offload" and one.params == {
            "needed": 16 * smollm().parameters,
            "available": memory,
        }
        assert bool(insisted([one])) == (one.level == "warning")


def _rows(path: Path, characters: int) -> Path:
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "a " * (characters // 2)}]
    rows = ([{**turns[0], "content": f"{number}?"}, turns[1]] for number in range(20))
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    return path


def test_a_job_that_cannot_fit_is_refused_with_the_cheapest_change(tmp_path):
    rows = _rows(tmp_path / "rows.jsonl", 40_000)
    small = Machine("Linux", "3.11", cores=2, memory=6 * GIB, memory_free=5 * GIB)
    text = f"model: smollm2-135m\ndata: {rows}\nstage: sft\ntrain: {{batch_size: 16}}\n"
    found = {one.code: one for one in check(parse_job(text), small, tmp_path / "home")}
    refusal = found["memory_too_small"]
    assert (
        "the cheapest change that fits: train.batch_size" in refusal.message and "--anyway" in refusal.message
    )
    with pytest.raises(FactoryError):
        refuse_errors([refusal])
    refuse_errors(insisted([refusal]))
    fixed = parse_job(text, [f"{name}={value}" for name, value in (refusal.fix or {}).items()])
    assert "memory_too_small" not in {one.code for one in check(fixed, small, tmp_path / "home")}


def test_short_rows_fit_where_the_longest_allowed_would_not(tmp_path):
    rows = _rows(tmp_path / "rows.jsonl", 40)
    small = Machine("Linux", "3.11", cores=2, memory=6 * GIB, memory_free=5 * GIB)
    text = f"model: smollm2-135m\ndata: {rows}\nstage: sft\ntrain: {{batch_size: 16}}\n"
    assert check(parse_job(text), small, tmp_path / "home") == []


# factory fit


def test_ways_to_train_8b_on_eight_gpus_of_80_gib():
    found = {(one.method, one.strategy): one for one in ways(llama(), "sft", *read_gpus("8x80"))}
    assert found["full", "ddp"].verdict == "too large"
    assert (
        found["full", "deepspeed-3"].verdict
        == found["lora", "ddp"].verdict
        == found["qlora", "ddp"].verdict
        == "fits"
    )


def test_a_way_that_does_not_fit_names_the_change_that_makes_it():
    found = {one.method: one for one in ways(llama(), "sft", *read_gpus("24"), length=8192, batch=8)}
    assert found["lora"].verdict == "too large" and found["lora"].change
    assert found["full"].change is None


@pytest.mark.parametrize(("text", "expected"), [("8x80", (8, 80)), ("24", (1, 24)), ("2 x 141GiB", (2, 141))])
def test_gpus_are_read(text, expected):
    count, size = read_gpus(text)
    assert (count, size / GIB) == expected


@pytest.mark.parametrize("text", ["", "8x", "x80", "0x80", "8x0", "eight"])
def test_other_words_for_gpus_are_refused(text):
    with pytest.raises(FactoryError, match="such as 8x80"):
        read_gpus(text)


# Time


def _events(rate: float) -> list[dict[str, Any]]:
    return [
        {"event": "ready", "mono": 10.0},
        {"event": "start", "mono": 22.0, "device": "cpu"},
        {"event": "metric", "step": 1, "values": {"tokens_per_second": rate / 10}},
        {"event": "metric", "step": 2, "values": {"tokens_per_second": rate}},
    ]


def test_a_finished_run_teaches_the_home_and_the_next_forecast(tmp_path):
    asked = job("train: {max_steps: 10}", parameters=smollm().parameters)
    lengths = Lengths(100, 50.0, 100, "counted")
    guess = forecast(asked, smollm(), CPU, tmp_path, lengths=lengths, steps=10)
    assert guess.runs == 0 and guess.tokens == 10 * 16 * 50
    plan = {"job": asked.model_dump(mode="json"), "forecast": guess.model_dump(mode="json")}
    assert learn(tmp_path, plan, _events(800.0))
    told = forecast(asked, smollm(), CPU, tmp_path, lengths=lengths, steps=10)
    assert told.runs == 1 and told.seconds == pytest.approx(12 + 8000 / 800)
    assert learn(tmp_path, plan, _events(1100.0))
    third = pace(tmp_path, "cpu", 2, "sft", "lora")
    assert third.runs == 2 and third.flops == pytest.approx(900 * guess.flops_per_token)


@pytest.mark.parametrize("damage", ["", "{", '{"rows": {"cpu, sft, lora": {"flops": 0}}}', '{"rows": []}'])
def test_a_damaged_table_is_a_table_that_knows_nothing(tmp_path, damage):
    (tmp_path / "calibration.json").write_text(damage)
    assert pace(tmp_path, "cpu", 2, "sft", "lora").runs == 0


def test_a_run_that_says_nothing_teaches_nothing(tmp_path):
    assert not learn(tmp_path, {"job": {}}, _events(5.0)) and not (tmp_path / "calibration.json").exists()


def test_locate_is_enough_to_forecast_the_embedded_model(tmp_path):
    assert shape_of(locate("smollm2-135m", tmp_path)) == smollm()
