"""The keys of a training YAML of LLaMA-Factory and what becomes of each: no logic.

PLAIN goes into a field as it stands, TURNED through a function of its own (the llama_ files beside this one), and
NO_PLACE says why there is none. Every key of its documentation stands in one of them (tests/unit/test_import.py).
"""

from __future__ import annotations

STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}

LOSSES = {"sigmoid": "sigmoid", "hinge": "hinge", "ipo": "ipo", "simpo": "simpo"}

TEMPLATES = {
    "alpaca": "alpaca",
    "chatml": "chatml",
    "deepseek": "deepseek",
    "default": "plain",
    "gemma": "gemma",
    "llama2": "llama2",
    "llama3": "llama3",
    "mistral": "mistral",
    "phi": "phi",
    "qwen": "qwen",
    "vicuna": "vicuna",
    "zephyr": "zephyr",
}
"""Their templates that are ours too, under the name in templates/chat; the others come with the models themselves."""

ATTENTION = {"auto": "auto", "disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2"}

TRACKERS = ("tensorboard", "wandb", "swanlab", "trackio", "mlflow")

PLAIN: dict[str, str] = {
    "model_name_or_path": "model.name",
    "seed": "train.seed",
    "per_device_train_batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.gradient_accumulation",
    "learning_rate": "train.learning_rate",
    "num_train_epochs": "train.epochs",
    "lr_scheduler_type": "train.scheduler",
    "weight_decay": "train.weight_decay",
    "max_grad_norm": "train.max_grad_norm",
    "optim": "train.optimizer",
    "logging_steps": "train.logging_steps",
    "save_steps": "train.save_steps",
    "eval_steps": "train.eval_steps",
    "save_total_limit": "train.keep_checkpoints",
    "load_best_model_at_end": "train.keep_best",
    "early_stopping_steps": "train.early_stopping",
    "neftune_noise_alpha": "train.neftune_alpha",
    "run_name": "name",
}

FLOATS = ("learning_rate", "num_train_epochs", "weight_decay", "max_grad_norm", "neftune_noise_alpha")

ADAPTER: dict[str, str] = {
    "lora_rank": "method.rank",
    "lora_alpha": "method.alpha",
    "lora_dropout": "method.dropout",
    "use_rslora": "method.rslora",
    "use_dora": "method.dora",
}

STAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "pref_beta": (("dpo", "kto", "orpo"), "stage.beta"),
    "dpo_label_smoothing": (("dpo",), "stage.label_smoothing"),
    "simpo_gamma": (("dpo",), "stage.simpo_gamma"),
    "kto_chosen_weight": (("kto",), "stage.desirable_weight"),
    "kto_rejected_weight": (("kto",), "stage.undesirable_weight"),
    "ppo_epochs": (("ppo",), "stage.num_ppo_epochs"),
    "ppo_whiten_rewards": (("ppo",), "stage.whiten_rewards"),
    "temperature": (("ppo",), "stage.temperature"),
}
"""Keys that only some stages have, and our field there."""

QUANTISED = ("quantization_type", "double_quantization", "quantization_method")

SECRETS = ("hf_hub_token", "ms_hub_token", "om_hub_token", "swanlab_api_key", "swanlab_lark_secret")

_GROUPS: dict[str, str] = {
    "processes are started and connected as hardware and launcher say": """ddp_timeout ddp_find_unused_parameters
        ddp_backend local_rank""",
    "nothing is started through Ray: several machines are hardware.nodes with launcher torchrun or slurm": """
        ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers resources_per_worker placement_strategy
        ray_init_kwargs""",
    "Megatron and KTransformers train nothing here": """use_mca use_kt kt_optimize_rule cpu_infer chunk_size mode
        kt_maxlen kt_use_cuda_graph kt_mode kt_force_think""",
    "a run has a folder of its own under the home folder (--home)": """output_dir overwrite_output_dir logging_dir
        save_only_model""",
    "curves and answers are part of every run": """plot_loss compute_accuracy predict_with_generate
        include_num_input_tokens_seen include_effective_tokens_per_second include_tokens_per_second""",
    "a run trains; factory train does what these switches ask for": """do_train do_eval do_predict do_sample
        evaluation_strategy eval_strategy save_strategy logging_strategy metric_for_best_model greater_is_better
        per_device_eval_batch_size eval_accumulation_steps eval_num_beams eval_on_each_dataset""",
    "a run goes on from its own checkpoints: factory resume ID": "resume_from_checkpoint",
    "rows are prepared once and kept in a cache that knows when it is stale": """overwrite_cache
        preprocessing_num_workers preprocessing_batch_size tokenized_path streaming buffer_size dataloader_num_workers
        dataloader_pin_memory cache_dir data_shared_file_system""",
    "padding never counts in the loss": "ignore_pad_token_for_loss group_by_length",
    "code that comes with a model is never run": "trust_remote_code",
    "the vocabulary stays the model's own": """resize_vocab split_special_tokens new_special_tokens add_tokens
        add_special_tokens new_special_tokens_config init_special_tokens use_fast_tokenizer""",
    "models are loaded as transformers loads them": """low_cpu_mem_usage adapter_folder offload_folder use_cache
        use_kv_cache use_reentrant_gc print_param_status compute_dtype device_map model_max_length block_diag_attn
        infer_dtype upcast_layernorm upcast_lmhead_output quantization_device_map remove_unused_columns""",
    "the architecture stays the model's own": """rope_scaling shift_attn mixture_of_depths moe_aux_loss_coef
        train_from_scratch use_llama_pro freeze_vision_tower freeze_multi_modal_projector freeze_language_model""",
    "kernels of others are chosen by an engine: engine: unsloth brings its own": """enable_liger_kernel use_v1_kernels
        fp8 fp8_backend fp8_enable_fsdp_float8_all_gather torch_compile""",
    "this kind of adapter or its start is not offered": """module_dropout oft_rank oft_block_size oft_target
        loraplus_lr_ratio loraplus_lr_embedding create_new_adapter pissa_iter""",
    "a run always delivers an adapter that fits the plain base": "pissa_convert",
    "the optimizer works with its library's own settings": """galore_target galore_rank galore_update_interval
        galore_scale galore_proj_type galore_layerwise apollo_target apollo_rank apollo_update_interval apollo_scale
        apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise apollo_scale_front""",
    "this optimizer is not offered": """use_badam badam_mode badam_start_block badam_switch_mode badam_switch_interval
        badam_update_ratio badam_mask_mode badam_verbose use_adam_mini use_muon""",
    "the model itself (or itself without the adapter) is the reference": """ref_model ref_model_adapters
        ref_model_quantization_bit""",
    "a reward model is loaded as it is: export it merged, then name its folder in rewards": """reward_model
        reward_model_adapters reward_model_quantization_bit reward_model_type""",
    "PPO keeps near its reference by a fixed kl_coef and takes whole batches": """ppo_buffer_size ppo_score_norm
        ppo_target""",
    "this loss has no such term here": "ld_alpha pref_bco_weight",
    "rows are shuffled by the seed": "disable_shuffling data_seed",
    "only text is trained": """media_dir image_dir image_resolution image_max_pixels image_min_pixels
        image_do_pan_and_scan crop_to_patches video_resolution video_max_pixels video_min_pixels video_fps video_maxlen
        use_audio_in_video audio_sampling_rate""",
    "tools stand in the rows, and the template writes them": "tool_format default_system enable_thinking",
    "sources are put together whole; data.sources has a weight for each": "interleave_probs",
    "trackers take their settings from the environment": """swanlab_project swanlab_workspace swanlab_run_name
        swanlab_mode swanlab_logdir swanlab_lark_webhook_url""",
    "how a finished model is asked is no part of its training": """infer_backend vllm_maxlen vllm_gpu_util
        vllm_enforce_eager vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size
        sglang_config sglang_lora_backend top_p top_k num_beams max_length max_new_tokens repetition_penalty
        length_penalty skip_special_tokens""",
    "exports are made by factory export, verified and in safetensors": """export_device export_quantization_bit
        export_quantization_dataset export_quantization_nsamples export_quantization_maxlen export_legacy_format
        export_hub_model_id export_size push_to_hub hub_model_id hub_strategy hub_private_repo""",
    "benchmarks of a finished model are no part of its training": """task task_dir batch_size lang n_shot save_dir
        download_mode""",
}

DONE_ANYWAY = (
    "a run has a folder of its own under the home folder (--home)",
    "curves and answers are part of every run",
    "a run trains; factory train does what these switches ask for",
    "a run goes on from its own checkpoints: factory resume ID",
    "rows are prepared once and kept in a cache that knows when it is stale",
    "padding never counts in the loss",
    "models are loaded as transformers loads them",
    "a run always delivers an adapter that fits the plain base",
    "how a finished model is asked is no part of its training",
)
"""Reasons that mean: nothing is lost."""

NO_PLACE: dict[str, str] = {key: words for words, keys in _GROUPS.items() for key in keys.split()}
"""Keys that are not carried over, and why."""

TURNED: frozenset[str] = frozenset(
    """stage pref_loss pref_ftx cutoff_len train_on_prompt mask_history packing neat_packing use_dft_loss
    model_revision adapter_name_or_path flash_attn template finetuning_type quantization_bit quantization_type
    double_quantization quantization_method lora_target additional_target pissa_init freeze_trainable_layers
    freeze_extra_modules freeze_trainable_modules dataset dataset_dir eval_dataset max_samples val_size mix_strategy
    max_steps warmup_steps warmup_ratio bf16 pure_bf16 fp16 gradient_checkpointing disable_gradient_checkpointing
    use_galore use_apollo reward_model reward_model_type report_to use_swanlab export_dir export_size
    max_new_tokens deepspeed fsdp fsdp_config use_unsloth use_unsloth_gc""".split()
)
"""Keys that become something else, or hang on others."""


def known_keys() -> frozenset[str]:
    """Every key that has an answer."""
    return TURNED | {*PLAIN, *ADAPTER, *STAGE, *SECRETS, *NO_PLACE}
