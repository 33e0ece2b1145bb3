"""Exports: made from a run, read back by others, and failed when anything is not what was trained."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cpu.conftest import chats, write_rows
from tests.cpu.exports import FAULTS
from tests.cpu.test_preference import pairs
from tests.cpu.test_sft import job
from tests.zygote import ChildFailed, Zygote

FILES = {
    "adapter": {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "generation_config.json",
    },
    "merged": {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
    },
    "gguf": {"model.gguf", "README.md"},
    "ollama": {"model.gguf", "Modelfile"},
    "hub": {"model.safetensors", "README.md", "curves.png"},
    "card": {"README.md", "curves.png"},
}


NAMED = {
    "merged:tensor": "model.layers.1.mlp.up_proj",
    "merged:eos": "generation_config.json",
    "merged:template": "chat_template.jinja",
    "adapter:tensor": "layers.1.mlp.up_proj.lora_B",
    "gguf:tensor": "blk.0.ffn_up.weight",
    "gguf:missing tensor": "blk.1.attn_k.weight",
    "gguf:eos": "tokenizer.ggml.eos_token_id",
    "ollama:stop": "Modelfile",
    "card:licence": "README.md",
}
"""The tensor or file that the sentence about a planted fault must name."""


class Bench:
    """Runs that all tests of this file share: training them is what takes the time."""

    def __init__(self, zygote: Zygote, folder: Path, tiny: str) -> None:
        self.zygote, self.folder, self.tiny = zygote, folder, tiny
        self.home = str(folder / "home")
        self.chats = write_rows(folder / "rows.jsonl", chats(50))
        self.pairs = write_rows(folder / "pairs.jsonl", pairs(40))
        self._runs: dict[str, str] = {}

    def train(self, name: str, asked: dict[str, Any]) -> Path:
        """The finished run called `name`, trained at most once."""
        if name not in self._runs:
            short = {"max_steps": 3, "learning_rate": 1e-2, "save_steps": 2}
            asked = {**asked, "train": asked["train"] | short}
            done = self.zygote.call("tests.cpu.jobs:train", job=asked, home=self.home)
            assert done["code"] == 0, done["events"][-1]
            self._runs[name] = done["run"]
        return Path(self._runs[name])

    @property
    def lora(self) -> Path:
        """A LoRA run on the tiny chat model."""
        return self.train("lora", job(self.tiny, self.chats))

    @property
    def full(self) -> Path:
        """A run of full training."""
        return self.train("full", job(self.tiny, self.chats, method="full"))

    @property
    def reward(self) -> Path:
        """A reward model with an adapter."""
        stage = {"name": "reward", "max_length": 256}
        return self.train("reward", job(self.tiny, self.pairs, stage=stage))

    def export(self, run: Path, name: str, **more: Any) -> dict[str, Any]:
        """One export, made in a fresh child."""
        given = {key: more.pop(key) for key in ("out", "base", "fault") if key in more}
        made: dict[str, Any] = self.zygote.call(
            "tests.cpu.exports:make", run=str(run), spec={"name": name, **more}, **given
        )
        return made


@pytest.fixture(scope="module")
def bench(zygote: Zygote, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The shared runs."""
    return Bench(zygote, tmp_path_factory.mktemp("exports"), tiny)


@pytest.mark.parametrize("target", FILES)
def test_every_target_is_made_whole_and_says_who_verified_it(bench: Bench, target: str) -> None:
    made = bench.export(bench.lora, target)
    assert made["state"] == "done", made["error"]
    names = {path.name for path in Path(made["path"]).iterdir()}
    assert FILES[target] | {"COMPLETE.json"} <= names and made["left"] == []
    assert made["bytes"] > 1000 and len(made["verified_by"]) >= (1 if target == "card" else 3)
    if target not in ("card",):
        assert any("logits through" in one for one in made["verified_by"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_verification_by_name_and_nothing_is_left(bench: Bench, fault: str) -> None:
    target = fault.split(":")[0]
    made = bench.export(bench.lora, target, fault=fault)
    assert (made["state"], made["code"], made["path"]) == ("failed", 2, None)
    assert made["error"]["code"] == "export_not_verified", made["error"]
    assert made["error"]["message"].startswith("The export was made, but it does not verify: ")
    assert NAMED.get(fault, "") in made["error"]["message"]
    assert made["left"] == [] and not (bench.lora / "exports" / made["name"]).exists()


def test_merged_is_base_and_adapter_for_a_user_who_knows_neither_us_nor_peft(bench: Bench) -> None:
    made = bench.export(bench.lora, "merged")
    told = bench.zygote.call(
        "tests.cpu.exports:difference",
        merged=made["path"],
        base=bench.tiny,
        adapter=str(bench.lora / "model"),
    )
    plain = bench.zygote.call(
        "tests.cpu.exports:difference", merged=made["path"], base=bench.tiny, adapter=None
    )
    assert told < 1e-4 < 0.01 < plain


def test_a_checkpoint_is_exported_as_it_was(bench: Bench) -> None:
    made = bench.export(bench.lora, "merged", checkpoint=2)
    assert made["state"] == "done" and made["name"] == "merged-step2"
    told = bench.zygote.call(
        "tests.cpu.exports:difference",
        merged=made["path"],
        base=bench.tiny,
        adapter=str(bench.lora / "checkpoints" / "checkpoint-2"),
    )
    assert told < 1e-4
    assert not (bench.lora / "checkpoints" / "checkpoint-2" / "IN_USE").exists()


def test_full_training_exports_its_weights_and_has_no_adapter(bench: Bench) -> None:
    made = bench.export(bench.full, "merged")
    assert made["state"] == "done"
    assert bench.zygote.call("tests.cpu.jobs:weights", folder=made["path"]) == bench.zygote.call(
        "tests.cpu.jobs:weights", folder=str(bench.full / "model")
    )
    refused = bench.export(bench.full, "adapter")
    assert refused["error"]["code"] == "export_without_adapter" and "merged" in refused["error"]["message"]


def test_the_precision_is_that_of_the_base_and_another_when_asked(bench: Bench) -> None:
    base = bench.zygote.call(
        "tests.cpu.exports:in_sixteen_bits", folder=bench.tiny, target=str(bench.folder / "bf16")
    )
    run = bench.train("bf16", job(base, bench.chats))
    made = bench.export(run, "merged")
    config = json.loads((Path(made["path"]) / "config.json").read_text("utf-8"))
    assert config["dtype"] == "bfloat16"
    size = (Path(made["path"]) / "model.safetensors").stat().st_size
    assert size == pytest.approx((Path(base) / "model.safetensors").stat().st_size, rel=0.02)
    for dtype in ("fp32", "fp16"):
        other = bench.export(run, "merged", dtype=dtype)
        assert other["state"] == "done" and other["name"] == f"merged-{dtype}"


def test_shards_are_as_small_as_asked(bench: Bench) -> None:
    made = bench.export(bench.full, "merged", shard_size=0.0001)
    files = sorted(Path(made["path"]).glob("model-*.safetensors"))
    assert made["state"] == "done" and len(files) > 2
    assert (Path(made["path"]) / "model.safetensors.index.json").is_file()
    assert all(path.stat().st_size < 120_000 for path in files)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "lora", "rank": 4, "modules_to_save": ["embed_tokens"]},
        {"name": "lora", "rank": 4, "target": ["embed_tokens", "q_proj"]},
        {"name": "lora", "rank": 4, "modules_to_save": ["lm_head"]},
        {"name": "lora", "rank": 4, "dora": True},
        {"name": "lora", "rank": 4, "rslora": True, "init": "pissa"},
    ],
    ids=lambda method: "+".join(f"{key}" for key in method if key not in ("name", "rank")),
)
def test_tied_weights_and_special_adapters_merge_right(bench: Bench, method: dict[str, Any]) -> None:
    run = bench.train(json.dumps(method), job(bench.tiny, bench.chats, method=method))
    made = bench.export(run, "merged")
    assert made["state"] == "done", made["error"]
    told = bench.zygote.call(
        "tests.cpu.exports:difference", merged=made["path"], base=bench.tiny, adapter=str(run / "model")
    )
    assert told < 1e-3


def test_embeddings_with_more_rows_than_tokens_are_kept(bench: Bench) -> None:
    wide = bench.zygote.call(
        "tests.tiny:save_tiny_at", folder=str(bench.folder / "wide"), vocab_size=448, tied=False
    )
    run = bench.train("wide", job(wide, bench.chats))
    made = bench.export(run, "merged")
    config = json.loads((Path(made["path"]) / "config.json").read_text("utf-8"))
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (448, False)
    assert bench.export(run, "gguf", quant="f16")["state"] == "done"


@pytest.mark.parametrize("bits", ["nf4", "int8"])
def test_an_adapter_beside_a_quantised_base_is_merged_onto_plain_weights(bench: Bench, bits: str) -> None:
    method = {"name": "qlora", "bits": bits, "rank": 4}
    run = bench.train(bits, job(bench.tiny, bench.chats, method=method))
    made = bench.export(run, "merged")
    assert made["state"] == "done", made["error"]
    assert any(bits in note for note in made["notes"])
    config = json.loads((Path(made["path"]) / "config.json").read_text("utf-8"))
    assert "quantization_config" not in config and config["dtype"] == "float32"


def test_a_reward_model_exports_as_a_classifier_and_never_as_gguf(bench: Bench) -> None:
    made = bench.export(bench.reward, "merged")
    assert made["state"] == "done", made["error"]
    config = json.loads((Path(made["path"]) / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["LlamaForSequenceClassification"] and len(config["id2label"]) == 1
    told = bench.zygote.call(
        "tests.cpu.exports:difference",
        merged=made["path"],
        base=bench.tiny,
        adapter=str(bench.reward / "model"),
        kind="SequenceClassification",
    )
    assert told < 1e-4
    assert bench.export(bench.reward, "adapter")["state"] == "done"
    for target in ("gguf", "ollama"):
        refused = bench.export(bench.reward, target)
        assert refused["error"]["code"] == "export_of_a_classifier"
        assert "scores answers" in refused["error"]["message"]


def test_the_template_of_the_training_is_the_template_of_the_export(bench: Bench) -> None:
    base = bench.zygote.call("tests.tiny:save_tiny_at", folder=str(bench.folder / "base"), template=None)
    run = bench.train("template", job({"name": base, "template": "zephyr"}, bench.chats))
    for target in ("merged", "adapter"):
        made = bench.export(run, target)
        assert bench.zygote.call("tests.cpu.exports:rendered", folder=made["path"]) == bench.zygote.call(
            "tests.cpu.exports:rendered", folder=str(run / "model")
        )
    assert bench.zygote.call("tests.cpu.exports:rendered", folder=base) == [None, None, None]


def test_all_tokenizer_files_of_the_base_come_along(bench: Bench) -> None:
    base = bench.folder / "with files"
    shutil.copytree(bench.tiny, base)
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json", "tokenizer.model"):
        (base / name).write_text("{}", "utf-8")
    run = bench.train("files", job(str(base), bench.chats))
    made = bench.export(run, "merged")
    weights = {"model.safetensors"}
    there, wanted = ({path.name for path in Path(one).iterdir()} for one in (made["path"], base))
    assert wanted - weights <= there


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 32}),
        ("Mistral", {"sliding_window": None}),
        ("Llama", {"head_dim": 32, "tie_word_embeddings": True}),
        (
            "Llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 10000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            },
        ),
    ],
    ids=["qwen2", "qwen3", "mistral", "llama with its own head size", "llama 3 positions"],
)
def test_gguf_of_every_architecture_answers_as_the_run(
    bench: Bench, architecture: str, more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    base = bench.zygote.call(
        "tests.cpu.exports:model_with", folder=str(bench.folder / name), architecture=architecture, **more
    )
    made = bench.export(bench.train(name, job(base, bench.chats)), "gguf", quant="f16")
    assert made["state"] == "done", made["error"]


def test_an_architecture_without_gguf_is_refused_early(bench: Bench) -> None:
    base = bench.zygote.call(
        "tests.cpu.exports:model_with", folder=str(bench.folder / "gemma"), architecture="Gemma", head_dim=16
    )
    run = bench.train("gemma", job(base, bench.chats))
    refused = bench.export(run, "gguf")
    assert refused["error"]["code"] == "export_architecture" and "'gemma'" in refused["error"]["message"]
    assert bench.export(run, "merged")["state"] == "done"


def test_a_tokenizer_that_llama_cpp_cannot_follow_is_refused_before_the_long_work(bench: Bench) -> None:
    base = bench.folder / "other split"
    shutil.copytree(bench.tiny, base)
    told = json.loads((base / "tokenizer.json").read_text("utf-8"))
    told["pre_tokenizer"]["use_regex"] = False
    (base / "tokenizer.json").write_text(json.dumps(told), "utf-8")
    run = bench.train("split", job(str(base), bench.chats))
    refused = bench.export(run, "gguf")
    assert refused["error"]["code"] == "gguf_pretokenizer_unknown"
    assert (
        "pre-tokenizer" in refused["error"]["message"] and '"use_regex": false' in refused["error"]["message"]
    )


def test_a_sentencepiece_tokenizer_without_its_model_is_named(bench: Bench) -> None:
    base = bench.folder / "pieces"
    shutil.copytree(bench.tiny, base)
    told = json.loads((base / "tokenizer.json").read_text("utf-8"))
    told["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    (base / "tokenizer.json").write_text(json.dumps(told), "utf-8")
    refused = bench.export(bench.train("pieces", job(str(base), bench.chats)), "gguf")
    assert refused["error"]["code"] == "gguf_tokenizer_model_missing"
    assert "tokenizer.model" in refused["error"]["message"]


def test_a_base_that_is_gone_is_named_and_can_be_given_anew(bench: Bench) -> None:
    base = bench.folder / "moves"
    shutil.copytree(bench.tiny, base)
    run = bench.train("moves", job(str(base), bench.chats))
    moved = base.rename(bench.folder / "moved here")
    refused = bench.export(run, "merged")
    assert refused["error"]["code"] == "base_gone"
    assert str(base) in refused["error"]["message"] and "--base" in refused["error"]["message"]
    assert bench.export(run, "merged", base=str(moved))["state"] == "done"


def test_a_base_of_another_vocabulary_or_shape_is_refused(bench: Bench) -> None:
    other = bench.zygote.call(
        "tests.tiny:save_tiny_at", folder=str(bench.folder / "other words"), template=None, bos=True
    )
    told = json.loads((Path(other) / "tokenizer.json").read_text("utf-8"))
    told["model"]["vocab"] = {
        token if number < 300 else f"{token}x": number for token, number in told["model"]["vocab"].items()
    }
    told["model"]["merges"] = []
    (Path(other) / "tokenizer.json").write_text(json.dumps(told), "utf-8")
    refused = bench.export(bench.lora, "merged", base=other)
    assert refused["error"]["code"] == "base_other_vocabulary"
    wide = bench.zygote.call("tests.tiny:save_tiny_at", folder=str(bench.folder / "wider"), hidden=96)
    refused = bench.export(bench.lora, "adapter", base=wide)
    assert refused["error"]["code"] == "base_other_shape" and "--base" in refused["error"]["message"]


def test_a_full_disk_in_the_middle_takes_the_export_back_and_leaves_the_run(bench: Bench) -> None:
    before = bench.zygote.call("tests.cpu.jobs:weights", folder=str(bench.lora / "model"))
    made = bench.zygote.call(
        "tests.cpu.exports:small_file_limit", run=str(bench.lora), spec={"name": "merged"}, most=200_000
    )
    assert (made["state"], made["error"]["code"], made["left"]) == ("failed", "disk_full", [])
    assert bench.zygote.call("tests.cpu.jobs:weights", folder=str(bench.lora / "model")) == before
    assert bench.export(bench.lora, "merged")["state"] == "done"


def test_a_disk_that_is_too_small_is_told_before_the_work(bench: Bench, tmp_path: Path) -> None:
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=True)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("needs root to mount a file system")
    try:
        made = bench.export(bench.lora, "merged", out=str(tmp_path / "there"))
        assert made["error"]["code"] == "disk_too_small" and "--out" in made["error"]["message"]
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_too_little_memory_is_told_in_numbers_before_anything_is_loaded(bench: Bench) -> None:
    spec = {"name": "merged"}
    made = bench.zygote.call(
        "tests.cpu.exports:little_memory", run=str(bench.lora), spec=spec, free=300 << 20
    )
    assert made["error"]["code"] == "memory_too_small" and made["left"] == []
    assert "300 MiB are free" in made["error"]["message"] and "--dtype bf16" in made["error"]["message"]


def test_another_place_is_filled_and_never_overwritten(bench: Bench, tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    made = bench.export(bench.lora, "card", out=str(place))
    assert made["path"] == str(place) and (place / "README.md").is_file()
    before = (place / "README.md").stat().st_mtime_ns
    with pytest.raises(
        ChildFailed, match="exists already and is not overwritten"
    ):  # refused before it begins
        bench.export(bench.lora, "card", out=str(place))
    assert (place / "README.md").stat().st_mtime_ns == before


def test_every_template_of_ours_is_said_in_ollamas_words_as_it_renders(zygote: Zygote) -> None:
    folder = Path(__file__).resolve().parents[2] / "templates" / "chat"
    names = sorted(path.stem for path in folder.glob("*.jinja"))
    default = (
        "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    told = zygote.call("tests.cpu.exports:go_templates", names=[*names, default])
    assert {name: one["same"] for name, one in told.items()} == dict.fromkeys([*names, default], True)
    assert all(one["chats"] >= 2 for one in told.values())
    assert "$last" not in told["chatml"]["text"]


def test_a_model_card_says_what_was_trained(bench: Bench) -> None:
    text = (Path(bench.export(bench.lora, "card")["path"]) / "README.md").read_text("utf-8")
    for words in (
        "license: other",
        "rows.jsonl",
        "| rank | `8` |",
        "loss: ",
        "AutoModelForCausalLM",
        "curves.png",
    ):
        assert words in text
    assert str(bench.folder) not in text, "a card names no path of the machine it was made on"


def test_ppo_exports_its_policy(bench: Bench) -> None:
    asked = {
        "model": bench.tiny,
        "data": write_rows(bench.folder / "ppo.jsonl", [{"prompt": f"What is {n}?"} for n in range(24)]),
        "stage": {"name": "ppo", "max_completion_length": 8, "num_ppo_epochs": 1},
        "method": {"name": "lora", "rank": 4},
        "rewards": [{"name": "length", "longest": 5}],
        "evaluate": {"prompts": ["?"], "max_new_tokens": 2},
        "train": {"batch_size": 4, "gradient_accumulation": 1, "logging_steps": 1, "warmup": 0.0},
    }
    run = bench.train("ppo", asked)
    made = bench.export(run, "merged")
    assert made["state"] == "done", made["error"]
    told = bench.zygote.call(
        "tests.cpu.exports:difference", merged=made["path"], base=bench.tiny, adapter=str(run / "model")
    )
    assert told < 1e-4
    assert bench.export(run, "adapter", checkpoint=2)["state"] == "done"


def test_a_checkpoint_whose_adapter_changed_its_base_is_exported_for_the_plain_base(bench: Bench) -> None:
    method = {"name": "lora", "rank": 4, "rslora": True, "init": "pissa"}
    run = bench.train(json.dumps(method), job(bench.tiny, bench.chats, method=method))
    for target in ("merged", "adapter"):
        made = bench.export(run, target, checkpoint=3)
        assert made["state"] == "done", made["error"]
        assert not list(Path(made["path"]).glob(".scratch"))
        told = bench.zygote.call(
            "tests.cpu.exports:difference",
            merged=bench.export(run, "merged")["path"] if target == "adapter" else made["path"],
            base=bench.tiny,
            adapter=made["path"] if target == "adapter" else str(run / "model"),
        )
        assert told < 1e-3


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("target", FILES)
def test_the_real_small_model_makes_every_target(bench: Bench, target: str) -> None:
    data = str(Path(__file__).resolve().parents[2] / "data" / "samples" / "persona.jsonl")
    asked = job("smollm2-135m", data, train={"batch_size": 1, "gradient_accumulation": 1})
    made = bench.export(bench.train("smollm2", asked), target)
    assert made["state"] == "done", made["error"]
    assert made["bytes"] > 1000 and made["verified_by"]


def test_a_push_makes_the_repository_as_asked_and_compares_every_file(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("model.safetensors", "deep/config.json"):
        (tmp_path / name).write_text(name)
    for private in (True, False):
        told = zygote.call("tests.cpu.exports:pushed", folder=str(tmp_path), private=private, lost=None)
        assert told["made"] == {"repo": "me/lamp", "private": private, "exist_ok": True}
        assert told["said"] == "2 files on the hub with the sizes they have here"
    told = zygote.call(
        "tests.cpu.exports:pushed", folder=str(tmp_path), private=True, lost="deep/config.json"
    )
    assert "deep/config.json is not whole on the hub" in told["refused"]
