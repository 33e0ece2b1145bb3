"""What a run made, opened for an export: weights or adapter, the base it belongs to, tokenizer, where answers end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
)

from core.job.models import check_folder, locate, parameter_count, read_config
from core.job.spec import JobSpec, ModelSpec
from core.methods.adapter import CHANGING_BASE
from core.runs.folder import Run
from core.runs.weights import weights_of
from core.stages import stage_module
from core.training.export.reader import describe, render
from core.training.model import load_tokenizer_of, model_folder
from core.training.saving import START
from data.errors import FactoryError, refuse

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NAMES = {kind: name for name, kind in DTYPES.items()}
COMPANIONS = (
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Files beside a model's tokenizer.json that other programs read; an export has all that the base has."""
PROBES = ("What is the capital of Norway?", "Write one sentence about the sea.")


class Source:
    """The result of a run, or a checkpoint of it. Loads nothing before it is asked."""

    def __init__(
        self, run: Run, job: JobSpec, checkpoint: int | None, base: str | None, scratch: Path
    ) -> None:
        """`scratch` is a folder that need not exist, for an adapter that must be changed before it can be used."""
        self.run, self.job = run, job
        self.task: str = stage_module(job.stage.name).TASK
        self.folder = weights_of(run, checkpoint)
        self.is_adapter = (self.folder / "adapter_config.json").is_file()
        self.base = self._base(base)
        self.config_folder = self.base if self.is_adapter else self.folder
        assert self.config_folder is not None
        config = read_config(self.config_folder)
        if config.get("quantization_config"):
            raise refuse(
                "base_quantised",
                f"The base in {str(self.config_folder)!r} is quantised itself, and an adapter is merged onto "
                "unquantised weights only; name the unquantised model with --base.",
                value=str(self.config_folder),
            )
        self.tokenizer = load_tokenizer_of(self.folder)  # the one it was trained with
        if self.is_adapter:
            self._same_vocabulary()
            if checkpoint is not None and getattr(job.method, "init", None) in CHANGING_BASE:
                self.folder = self._for_the_plain_base(scratch)

    def _base(self, moved: str | None) -> Path | None:
        """The folder of the unchanged base. Refused with the stored place and --base when it is gone."""
        spec = self.job.model if moved is None else renamed(self.job.model, moved)
        if not self.is_adapter and moved is None:
            try:
                return locate(spec.name, self.run.home, revision=spec.revision).folder
            except FactoryError:
                return None  # whole weights need no base; only its companions are missed
        try:
            folder = model_folder(spec, self.run.home)
            check_folder(folder)
        except FactoryError as problem:
            if moved is not None:
                raise
            raise refuse(
                "base_gone",
                f"Run {self.run.id} is an adapter, and its base {spec.name!r} cannot be had any more "
                f"({problem.findings[0].message.rstrip('.')}); say where it is now with --base FOLDER.",
                field="base",
                value=spec.name,
            ) from problem
        return folder

    def _same_vocabulary(self) -> None:
        """Refuse a base whose tokenizer or size is not the one the adapter was trained on."""
        assert self.base is not None
        base = load_tokenizer_of(self.base)
        ours, theirs = self.tokenizer.get_vocab(), base.get_vocab()
        if any(ours.get(token) != number for token, number in theirs.items()):
            raise refuse(
                "base_other_vocabulary",
                f"The base in {str(self.base)!r} has another vocabulary ({len(theirs):,} tokens) than the one the "
                f"adapter was trained on ({len(ours):,} tokens); name the right one with --base.",
                field="base",
                value=str(self.base),
            )

    def _for_the_plain_base(self, folder: Path) -> Path:
        """A checkpoint's adapter made to fit the plain base; its start took a part of the base into itself.

        As `save_model` does for a finished run: what it was at the start is taken off, so its rank doubles.
        """
        from peft import PeftModel

        worn = self.load(torch.float32)
        assert isinstance(worn, PeftModel)
        worn.peft_config["default"].init_lora_weights = True
        worn.save_pretrained(folder, path_initial_model_for_weight_conversion=str(self.run.path / START))
        self.tokenizer.save_pretrained(folder)
        return folder

    def config(self) -> Any:
        """transformers' config of the model."""
        return AutoConfig.from_pretrained(self.config_folder, trust_remote_code=False, local_files_only=True)

    def parameters(self) -> int:
        """Weights of the model, from the headers of its files."""
        place = locate(str(self.config_folder), self.run.home)
        return parameter_count(place) or 0

    def base_dtype(self) -> str:
        """The precision of the base's weights: fp32, bf16 or fp16."""
        folder = self.base or self.folder
        named = read_config(folder).get("dtype") or read_config(folder).get("torch_dtype")
        return {"bfloat16": "bf16", "float16": "fp16"}.get(str(named).removeprefix("torch."), "fp32")

    def load(self, dtype: torch.dtype) -> Any:
        """The model as a user would load it: base and adapter, or the whole weights. Frozen, on the CPU."""
        kinds = {"CAUSAL_LM": AutoModelForCausalLM, "SEQ_CLS": AutoModelForSequenceClassification}
        model = kinds[self.task].from_pretrained(
            self.config_folder,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            **({"num_labels": 1} if self.task == "SEQ_CLS" else {}),
        )
        if self.tokenizer.pad_token_id is not None:
            model.config.pad_token_id = self.tokenizer.pad_token_id
        return self.wear(model) if self.is_adapter else model.requires_grad_(False)

    def wear(self, model: Any) -> Any:
        """The base with the run's adapter on."""
        from peft import PeftModel

        try:
            worn = PeftModel.from_pretrained(model, str(self.folder))
        except (RuntimeError, ValueError, KeyError) as problem:
            first = next(
                (line.strip() for line in str(problem).splitlines()[1:] if line.strip()), str(problem)
            )
            raise refuse(
                "base_other_shape",
                f"The adapter of run {self.run.id} does not fit the base in {str(self.base)!r} ({first[:200]}); "
                "name the model it was trained on with --base.",
                field="base",
                value=str(self.base),
            ) from problem
        return worn.requires_grad_(False)

    def sequences(self) -> list[list[int]]:
        """Token ids to compare logits on: rendered prompts, and ids from all over the vocabulary."""
        prompts = [*self.job.evaluate.prompts, *PROBES][:2]
        rendered = [render(self.tokenizer, [{"role": "user", "content": prompt}]) for prompt in prompts]
        texts = [text or prompt for text, prompt in zip(rendered, prompts, strict=True)]
        ids = [self.tokenizer(text, add_special_tokens=False)["input_ids"][-32:] for text in texts]
        size = len(self.tokenizer)
        spread = [number * (size - 1) // 23 for number in range(24)]
        return [one for one in [*ids, spread] if one]

    def ends(self) -> list[int]:
        """The tokens at which an answer ends: the tokenizer's end mark, and what the template puts behind a turn."""
        found = [self.tokenizer.eos_token_id] if self.tokenizer.eos_token_id is not None else []
        if (mark := self.turn_end()) is not None and mark not in found:
            found.append(mark)
        return found

    def turn_end(self) -> int | None:
        """The special token that the template writes behind an assistant's answer; None when it writes none."""
        if not self.tokenizer.chat_template:
            return None
        chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "@answer@"}]
        text = str(self.tokenizer.apply_chat_template(chat, tokenize=False))
        behind = text.rpartition("@answer@")[2].lstrip()
        special = sorted(
            (token for token in self.tokenizer.all_special_tokens if behind.startswith(token)), key=len
        )
        return int(self.tokenizer.convert_tokens_to_ids(special[-1])) if special else None

    def generation(self, model: Any) -> GenerationConfig:
        """The generation config of the model, with every end of an answer in it."""
        config = getattr(model, "generation_config", None) or GenerationConfig()
        for folder in (self.folder, self.base):
            if folder is not None and (folder / "generation_config.json").is_file():
                config = GenerationConfig.from_pretrained(folder, local_files_only=True)
                break
        told = config.eos_token_id
        ends = [*([told] if isinstance(told, int) else told or [])]
        ends += [token for token in self.ends() if token not in ends]
        config.eos_token_id = ends[0] if len(ends) == 1 else ends or None
        config.pad_token_id = self.tokenizer.pad_token_id
        config.bos_token_id = self.tokenizer.bos_token_id
        config.use_cache = True
        return config

    def write_companions(self, folder: Path, model: Any) -> None:
        """Tokenizer, template, generation config, and the files beside the base's tokenizer that are not there yet."""
        self.tokenizer.save_pretrained(folder)
        if self.task == "CAUSAL_LM":
            self.generation(model).save_pretrained(folder)
        for name in COMPANIONS:
            for origin in (self.folder, self.base):
                if origin is not None and (origin / name).is_file() and not (folder / name).exists():
                    shutil.copyfile(origin / name, folder / name)

    def described(self) -> dict[str, Any]:
        """The tokenizer's marks, ids and chats, for comparison with what is read back."""
        return describe(self.tokenizer)

    def quantised(self) -> str | None:
        """How the base was held while the adapter was trained, when that was not in its own precision."""
        bits = getattr(self.job.method, "bits", None)
        return str(bits) if bits is not None else None


def renamed(spec: ModelSpec, place: str) -> ModelSpec:
    """The model spec with another place in it, whose template is its own."""
    return spec.model_copy(update={"name": place, "revision": None, "template": None})
