"""LLaMA-Factory's training YAML read into our job: every documented key is mapped or named with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.job.foreign.lines import Imported
from core.job.foreign.llama_factory import import_job
from core.job.foreign.llama_keys import NO_PLACE, known_keys
from core.job.load import parse_job
from core.job.reader import read_text
from core.job.schema import all_fields
from data.errors import FactoryError

HERE = Path(__file__).parent / "foreign"
EXAMPLES = sorted(HERE.glob("*.yaml"))

# The names in LLaMA-Factory's page of arguments and in its hparams, and of transformers' arguments in its examples.
DOCUMENTED = """
additional_target lora_alpha lora_dropout lora_rank lora_target loraplus_lr_ratio loraplus_lr_embedding use_rslora
use_dora pissa_init pissa_iter pissa_convert create_new_adapter pref_beta pref_ftx pref_loss dpo_label_smoothing
kto_chosen_weight kto_rejected_weight simpo_gamma ppo_buffer_size ppo_epochs ppo_score_norm ppo_target
ppo_whiten_rewards ref_model ref_model_adapters ref_model_quantization_bit reward_model reward_model_adapters
reward_model_quantization_bit reward_model_type freeze_trainable_layers freeze_trainable_modules freeze_extra_modules
use_badam badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode
badam_verbose use_galore galore_target galore_rank galore_update_interval galore_scale galore_proj_type
galore_layerwise template dataset eval_dataset dataset_dir image_dir cutoff_len train_on_prompt mask_history streaming
buffer_size mix_strategy interleave_probs overwrite_cache preprocessing_batch_size preprocessing_num_workers
max_samples eval_num_beams ignore_pad_token_for_loss val_size packing neat_packing tool_format tokenized_path
model_name_or_path adapter_name_or_path adapter_folder cache_dir use_fast_tokenizer resize_vocab split_special_tokens
new_special_tokens model_revision low_cpu_mem_usage rope_scaling flash_attn shift_attn mixture_of_depths use_unsloth
use_unsloth_gc enable_liger_kernel moe_aux_loss_coef disable_gradient_checkpointing upcast_layernorm
upcast_lmhead_output train_from_scratch infer_backend offload_folder use_cache infer_dtype hf_hub_token ms_hub_token
om_hub_token print_param_status compute_dtype device_map model_max_length block_diag_attn image_resolution
video_resolution video_fps video_maxlen vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config
quantization_method quantization_bit quantization_type double_quantization quantization_device_map export_dir
export_size export_device export_quantization_bit export_quantization_dataset export_quantization_nsamples
export_quantization_maxlen export_legacy_format export_hub_model_id task task_dir batch_size seed lang n_shot save_dir
download_mode do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty
default_system
media_dir eval_on_each_dataset pref_bco_weight ld_alpha module_dropout oft_rank oft_block_size oft_target use_apollo
apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type
apollo_layerwise apollo_scale_front use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode
swanlab_api_key swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret pure_bf16 stage finetuning_type
use_llama_pro use_adam_mini use_mca use_muon use_dft_loss freeze_vision_tower freeze_multi_modal_projector
freeze_language_model compute_accuracy disable_shuffling early_stopping_steps plot_loss
include_effective_tokens_per_second add_tokens add_special_tokens new_special_tokens_config init_special_tokens
use_reentrant_gc use_kv_cache use_v1_kernels trust_remote_code fp8 fp8_backend fp8_enable_fsdp_float8_all_gather
image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels
use_audio_in_video audio_sampling_rate sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config
sglang_lora_backend use_kt kt_optimize_rule cpu_infer chunk_size mode kt_maxlen kt_use_cuda_graph kt_mode
kt_force_think ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers resources_per_worker
placement_strategy ray_init_kwargs overwrite_output_dir
do_train do_eval do_predict predict_with_generate output_dir logging_steps save_steps save_total_limit
per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps learning_rate num_train_epochs
max_steps lr_scheduler_type warmup_ratio warmup_steps weight_decay max_grad_norm optim bf16 fp16
gradient_checkpointing ddp_timeout deepspeed fsdp eval_strategy eval_steps report_to run_name resume_from_checkpoint
load_best_model_at_end metric_for_best_model save_only_model neftune_noise_alpha dataloader_num_workers push_to_hub
""".split()


def read(name: str, **more: Any) -> Imported:
    """One of the examples, imported, with keys changed."""
    values = read_text((HERE / f"{name}.yaml").read_text("utf-8"), name).value
    return import_job({**values, **more}, HERE)


def yaml_of(made: Imported) -> str:
    """The made job as the command writes it."""
    import yaml

    return str(yaml.safe_dump(made.job, sort_keys=False))


@pytest.mark.parametrize("key", DOCUMENTED)
def test_every_documented_key_is_mapped_or_named(key):
    assert key in known_keys()


@pytest.mark.parametrize("key", sorted(known_keys() - {"stage", "pref_loss"}))
def test_every_key_gets_exactly_one_line_in_the_report(key):
    values = {"model_name_or_path": "acme/base", "dataset": "a", "stage": "sft", key: _some(key)}
    made = import_job(values, HERE)
    assert [line.key for line in made.lines].count(key) == 1
    assert all(line.words or line.kind == "mapped" for line in made.lines)


def _some(key: str) -> Any:
    texts = {"finetuning_type": "lora", "template": "qwen", "model_revision": "main", "flash_attn": "sdpa"}
    return texts.get(key, 1)


def test_no_key_stands_in_two_tables():
    assert len(DOCUMENTED) == len(set(DOCUMENTED))
    assert all(words for words in NO_PLACE.values())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_becomes_a_job_that_is_valid_as_it_stands(path):
    made = read(path.stem)
    job = parse_job(yaml_of(made))
    assert job.model.name.startswith("acme/")
    fields = {line.field for line in made.lines if line.field}
    assert {field for field in fields if field.split(".")[0] not in ("method", "stage", "export")} <= set(
        all_fields()
    )


def test_lora_sft_is_carried_over_with_its_numbers():
    job = parse_job(yaml_of(read("lora_sft")))
    assert job.stage.name == "sft" and (job.stage.max_length, job.stage.packing) == (4096, True)
    method: Any = job.method
    assert (method.rank, method.alpha, method.target, method.rslora) == (32, 64, ["q_proj", "v_proj"], True)
    train = job.train
    assert (train.batch_size, train.gradient_accumulation, train.learning_rate) == (2, 4, 1e-4)
    assert (train.epochs, train.scheduler, train.warmup) == (2.0, "cosine", 0.1)
    assert job.data.eval == 0.05 and [source.name for source in job.data.sources] == ["greetings", "orders"]
    assert all(source.registry == str(HERE / "rows" / "dataset_info.json") for source in job.data.sources)
    assert all(source.take == 500 for source in job.data.sources)
    assert job.model.template == "qwen" and job.report_to == ["wandb"] and job.hardware.precision == "auto"


def test_qlora_dpo_is_carried_over_and_says_what_is_different():
    made = read("qlora_dpo")
    job = parse_job(yaml_of(made))
    method, stage = job.method, job.stage
    assert method.name == "qlora" and (method.bits, method.double_quant, method.rank) == ("nf4", False, 8)  # type: ignore[attr-defined]
    assert (stage.loss, stage.loss_weights, stage.beta) == (["sigmoid", "sft"], [1.0, 0.5], 0.2)  # type: ignore[attr-defined]
    assert (job.train.max_steps, job.train.epochs, job.train.warmup) == (300, None, 20.0)
    assert job.model.attention == "flash_attention_2" and job.hardware.precision == "fp16"
    told = {line.key: line for line in made.lines}
    assert "nf4" in told["quantization_type"].words and told["template"].kind == "changed"
    assert told["num_train_epochs"].kind == "not needed"


def test_ppo_takes_its_reward_model_as_a_reward():
    job = parse_job(yaml_of(read("full_ppo")))
    stage: Any = job.stage
    assert [(reward.name, reward.source) for reward in job.rewards] == [("model", "acme/judge")]  # type: ignore[attr-defined]
    assert (stage.num_ppo_epochs, stage.max_completion_length, stage.whiten_rewards) == (2, 128, True)
    lora = read("full_ppo", reward_model_type="lora")
    assert "rewards" not in lora.job
    assert {line.key: line.kind for line in lora.lines}["reward_model"] == "not mapped"


@pytest.mark.parametrize(
    ("loss", "stage", "losses"),
    [
        ("orpo", "orpo", None),
        ("simpo", "dpo", ["simpo"]),
        ("ipo", "dpo", ["ipo"]),
        ("kto_pair", "dpo", ["sigmoid"]),
    ],
)
def test_preference_losses_find_their_stage(loss, stage, losses):
    job = parse_job(yaml_of(read("qlora_dpo", pref_loss=loss, pref_ftx=0.0)))
    assert job.stage.name == stage and getattr(job.stage, "loss", None) == losses


@pytest.mark.parametrize(
    ("settings", "strategy", "offload"),
    [
        ({"zero_optimization": {"stage": 2, "overlap_comm": False}}, "deepspeed-2", None),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, "deepspeed-3", True),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}, "deepspeed-2", None),
        ({"zero_optimization": {"stage": 0}}, None, None),
        ({"train_batch_size": "auto"}, None, None),
    ],
)
def test_a_deepspeed_json_keeps_its_place_and_says_the_strategy(tmp_path, settings, strategy, offload):
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    values = {"model_name_or_path": "acme/base", "stage": "sft", "dataset": "a", "finetuning_type": "full"}
    for told in ("ds.json", settings):
        made = import_job({**values, "deepspeed": told}, tmp_path)
        hardware = parse_job(yaml_of(made)).hardware if strategy else made.job.get("hardware", {})
        if not strategy:
            assert hardware == {}
            continue
        assert (hardware.strategy, hardware.offload) == (strategy, bool(offload))
        assert hardware.deepspeed_config == (str(tmp_path / "ds.json") if told == "ds.json" else None)
    (line,) = [one for one in made.lines if one.key == "deepspeed"]
    assert "hardware.devices" in line.words and line.kind == ("changed" if strategy else "not needed")


@pytest.mark.parametrize(
    ("words", "strategy"),
    [("full_shard auto_wrap", "fsdp2"), ("no_shard", "ddp"), ("full_shard offload", "fsdp2"), ("", None)],
)
def test_fsdp_becomes_a_strategy(words, strategy):
    made = read("lora_sft", deepspeed=None, fsdp=words, fsdp_config={"x": 1})
    assert made.job["hardware"].get("strategy") == strategy
    kinds = {line.key: line for line in made.lines}
    assert kinds["fsdp_config"].kind == "not needed"
    assert ("offload is DeepSpeed's here" in kinds["fsdp"].words) == ("offload" in words)


def test_unsloth_is_taken_where_it_trains_such_a_job_here():
    made = read("lora_sft", deepspeed=None, use_unsloth=True, use_unsloth_gc=True)
    assert made.job["engine"] == {"name": "unsloth", "checkpointing": "unsloth"}
    assert parse_job(yaml_of(made)).engine.name == "unsloth"
    for example, more, why in (
        ("full_ppo", {}, "no stage ppo"),
        ("lora_sft", {"deepspeed": None, "finetuning_type": "freeze"}, "no method freeze"),
        ("lora_sft", {"deepspeed": None, "fsdp": "full_shard"}, "one process"),
    ):
        other = read(example, use_unsloth=True, use_unsloth_gc=True, **more)
        told = {line.key: line for line in other.lines}
        assert "engine" not in other.job and told["use_unsloth"].kind == "not mapped"
        assert why in told["use_unsloth"].words and told["use_unsloth_gc"].kind == "not mapped"
    assert "engine" not in read("lora_sft", use_unsloth=False, use_unsloth_gc=False).job


def test_kernels_of_others_are_still_reported():
    told = {line.key: line for line in read("lora_sft", enable_liger_kernel=True).lines}
    assert (
        told["enable_liger_kernel"].kind == "not mapped"
        and "engine: unsloth" in told["enable_liger_kernel"].words
    )


def test_a_secret_is_never_repeated():
    lines = read("lora_sft").lines
    assert all("hf_nota" not in str(line.value) for line in lines)
    told = {line.key: line for line in lines}["hf_hub_token"]
    assert told.kind == "not mapped" and "environment" in told.words


def test_the_command_writes_the_job_and_a_report_and_overwrites_nothing(tmp_path, capsys):
    out = tmp_path / "job.yaml"
    words = ["import", str(HERE / "lora_sft.yaml"), "-o", str(out)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "lora_rank" in told and "method.rank" in told and f"Next: factory check {out}" in told
    text = out.read_text("utf-8")
    assert "#   deepspeed: there is no such JSON to read its stage from" in text and "hf_nota" not in text
    assert parse_job(text).stage.name == "sft"
    assert main(words) == 2
    assert main([*words, "--force", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert {line["kind"] for line in lines} == {"mapped", "changed", "not needed", "not mapped"}


@pytest.mark.parametrize("values", [{"learning_rate": 1}, {"model_name_or_path": "a/b", "stage": "sfft"}])
def test_what_is_no_training_is_refused(values):
    with pytest.raises(FactoryError):
        import_job(values, HERE)


ODD: list[Any] = [[], [1], ["a"], [{}], {}, {"a": 1}, "", "soon", ",", "~nobody/x", "a" * 9000, "1e999", None]
ODD += [True, -1, 0, 0.5, 10**400, float("nan"), float("inf")]


@pytest.mark.parametrize("base", [path.stem for path in EXAMPLES])
def test_an_odd_value_of_any_key_is_taken_or_refused_in_words(base):
    values = read_text((HERE / f"{base}.yaml").read_text("utf-8"), base).value
    for key in known_keys():
        for odd in ODD:
            try:
                made = import_job({**values, key: odd}, HERE)
            except FactoryError as refusal:
                assert key in str(refusal), (key, odd)
            else:
                assert any(line.key == key for line in made.lines)


@pytest.mark.parametrize(
    ("key", "value", "takes"),
    [
        ("lora_rank", "soon", 'lora_rank takes a whole number; got "soon".'),
        ("lora_rank", 8.5, "lora_rank takes a whole number; got 8.5."),
        ("quantization_bit", [4], "quantization_bit takes a whole number; got [4]."),
        ("val_size", {}, "val_size takes a number; got {}."),
        ("template", ["qwen"], 'template takes a text; got ["qwen"].'),
        ("packing", "false", 'packing takes true or false; got "false".'),
        ("dataset", {"a": 1}, 'dataset takes names, as a list or with commas between them; got {"a": 1}.'),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_what_the_key_takes(key, value, takes):
    with pytest.raises(FactoryError) as refused:
        read("lora_sft", **{key: value})
    assert str(refused.value) == takes


def test_whole_numbers_as_text_stay_whole_and_null_is_the_default():
    job = read("lora_sft", lora_rank="16", lora_alpha=None, run_name="1e4").job
    assert (job["method"]["rank"], job["method"]["alpha"], job["name"]) == (16, 32, "1e4")


BASE = "model_name_or_path: acme/base\nstage: sft\ndataset: a\n"


def run_import(tmp_path: Path, text: str, *words: str) -> int:
    (tmp_path / "theirs.yaml").write_text(text, "utf-8")
    return main(["import", str(tmp_path / "theirs.yaml"), "-o", str(tmp_path / "job.yaml"), *words])


def test_keys_that_stand_twice_and_anchors_are_refused_together_with_odd_values(tmp_path, capsys):
    text = (
        BASE + "learning_rate: 1e-4\nlearning_rate: 2e-4\nsave_steps: &r 5\ncutoff_len: *r\nlora_rank: soon\n"
    )
    assert run_import(tmp_path, text) == 2
    told = capsys.readouterr().err
    assert all(key in told for key in ("learning_rate", "cutoff_len", "lora_rank"))
    assert not (tmp_path / "job.yaml").exists()


def test_a_job_that_cannot_be_trained_is_written_with_exit_code_one(tmp_path, capsys):
    assert run_import(tmp_path, "model_name_or_path: acme/base\nstage: sft\n") == 1
    assert "cannot be trained as it stands" in capsys.readouterr().out
    assert run_import(tmp_path, BASE, "--force") == 1
    assert "data/dataset_info.json" in capsys.readouterr().out
    assert run_import(tmp_path, BASE, "--force", "--json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["code"] for one in findings] == ["foreign_registry_missing"]


def test_a_place_that_cannot_be_written_is_said_as_factory_new_says_it(tmp_path, capsys):
    for out in (tmp_path / "nodir" / "x.yaml", tmp_path):
        assert run_import(tmp_path, BASE, "--force", "-o", str(out)) == 2
        assert f"{out} cannot be written:" in capsys.readouterr().err


def test_a_job_of_ours_is_told_to_be_one_already(tmp_path, capsys):
    assert run_import(tmp_path, "model: smollm2-135m\ndata: rows.jsonl\nstage: sft\n") == 2
    assert "is a job of Factory already" in capsys.readouterr().err


def test_a_key_with_a_line_break_stays_in_the_comment(tmp_path):
    run_import(tmp_path, BASE + '"odd\\nmodel: other": 1\n')
    assert parse_job((tmp_path / "job.yaml").read_text("utf-8")).model.name == "acme/base"
