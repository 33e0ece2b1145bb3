"""The settings of fsdp2 become what the real classes understand: no GPU is needed to see that, and none ran it here."""

from __future__ import annotations

from pathlib import Path

from tests.zygote import Zygote

TEXT = (
    "model: {model}\ndata: rows.jsonl\nstage: sft\nmethod: full\nhardware: {{devices: 2, strategy: fsdp2}}\n"
)


def plugin_of(model: str, out: str) -> dict[str, object]:
    """What accelerate's plugin says when transformers makes it of our settings for two processes."""
    import os

    from transformers import TrainingArguments

    from core.job.fsdp import fsdp_settings
    from core.job.load import parse_job

    os.environ["ACCELERATE_USE_FSDP"] = "true"
    settings = fsdp_settings(parse_job(TEXT.format(model=model)))
    arguments = TrainingArguments(output_dir=out, use_cpu=True, report_to="none", **settings)
    from accelerate.utils import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
    return {
        "version": plugin.fsdp_version,
        "reshard": plugin.reshard_after_forward,
        "state": str(plugin.state_dict_type),
        "checkpointing": plugin.activation_checkpointing,
        "policy": getattr(plugin.auto_wrap_policy, "__name__", ""),
        "ram": plugin.cpu_ram_efficient_loading,
        "left": sorted(set(arguments.fsdp_config) - set(settings["fsdp_config"])),
    }


def test_fsdp2_is_what_accelerate_will_be_told(zygote: Zygote, tiny: str, tmp_path: Path) -> None:
    told = zygote.call("tests.cpu.test_fsdp_settings:plugin_of", model=tiny, out=str(tmp_path / "out"))
    assert told["version"] == 2 and told["reshard"] is True
    assert told["policy"] == "transformer_auto_wrap_policy"
    assert told["state"].endswith("FULL_STATE_DICT") and not told["checkpointing"] and not told["ram"], told
