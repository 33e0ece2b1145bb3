"""A model's weights in memory, once, and the adapters that can be put on them and taken off again."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.chat.settings import FALLBACK
from core.chat.speakers import Speaker
from core.job.models import adapter_folder
from core.job.spec import ModelSpec
from core.training.model import adapter_refusal, load_tokenizer, model_folder, read_template
from data.errors import FactoryError, refuse
from data.template import Template

READABLE = (OSError, ValueError, KeyError, RuntimeError, ImportError)
"""What the libraries raise for files that cannot be read."""


@dataclass
class Loaded:
    """A speaker that can answer now."""

    speaker: Speaker
    tokenizer: Any
    template: Template | None
    adapters: tuple[str, ...]
    """Names, in peft, of the adapters it wears."""
    ends: list[int]
    """Tokens at which an answer ends."""
    defaults: dict[str, Any]
    """How it draws answers when nobody says."""


class Weights:
    """One model in memory. Speakers of the same weights differ in adapters, tokenizer and template only."""

    def __init__(self, speaker: Speaker, home: Path, *, half: bool) -> None:
        """Load the weights. Raises FactoryError when they are not whole, not there, or not to be read."""
        self._home = home
        self.folder = model_folder(ModelSpec(name=speaker.name, revision=speaker.revision), home)
        self.device = _device()
        wanted = torch.bfloat16 if half or self.device != "cpu" else torch.float32
        try:
            self.model: Any = AutoModelForCausalLM.from_pretrained(
                self.folder,
                dtype=wanted,
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
            )
        except READABLE as problem:
            raise _unreadable(speaker, problem) from problem
        self.model.eval().requires_grad_(False).to(self.device)
        config = self.model.config.get_text_config()
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.dtype = str(wanted).removeprefix("torch.")
        self.parameters = sum(one.numel() for one in self.model.parameters())
        self._names: dict[tuple[str, str | None], str] = {}
        self._worn: tuple[str, ...] | None = None
        self.loaded: dict[str, Loaded] = {}

    def introduce(self, speaker: Speaker) -> Loaded:
        """Make a speaker of these weights ready. Raises FactoryError when its adapter or tokenizer does not fit."""
        if (known := self.loaded.get(speaker.key)) is not None and known.speaker == speaker:
            return known
        tokenizer = self._tokenizer(speaker)
        rows = self.model.get_input_embeddings().num_embeddings
        if speaker.adapters and (used := max(tokenizer.get_vocab().values())) >= rows:
            text = (
                f"{speaker.title} knows {used + 1:,} tokens and its base {speaker.name!r} has {rows:,}: that is not "
                "the model it was trained on; put the right one there."
            )
            raise refuse("base_other_vocabulary", text, value=speaker.name)
        adapters = tuple(self._adapter(folder, speaker.start) for folder in speaker.adapters)
        template = _template(tokenizer)
        own = _generation(Path(speaker.tokenizer) if speaker.tokenizer else self.folder)
        ends = _ends(tokenizer, template, own, _generation(self.folder))
        defaults = {name: own.get(name, value) for name, value in FALLBACK.items()}
        made = Loaded(speaker, tokenizer, template, adapters, ends, defaults)
        self.loaded[speaker.key] = made
        return made

    def wear(self, adapters: tuple[str, ...]) -> None:
        """Put exactly these adapters on; none gives the plain base."""
        if not self._names or adapters == self._worn:
            return
        if adapters:
            self.model.base_model.set_adapter(list(adapters), inference_mode=True)
        if bool(adapters) != bool(self._worn):
            (
                self.model.base_model.enable_adapter_layers
                if adapters
                else self.model.base_model.disable_adapter_layers
            )()
            self.model.requires_grad_(False)
        self._worn = adapters

    def _tokenizer(self, speaker: Speaker) -> Any:
        if speaker.tokenizer is None:
            return load_tokenizer(
                ModelSpec(name=speaker.name, revision=speaker.revision, template=speaker.template), self._home
            )
        try:
            made = AutoTokenizer.from_pretrained(
                speaker.tokenizer, trust_remote_code=False, local_files_only=True
            )
        except READABLE as problem:
            raise _unreadable(speaker, problem) from problem
        if speaker.template is not None:
            made.chat_template = read_template(speaker.template)
        return made

    def _adapter(self, folder: str, start: str | None) -> str:
        if (folder, start) not in self._names:
            name = f"adapter{len(self._names)}"
            adapter_folder(folder)
            if start is None:
                self._load(folder, name)
            else:
                self._load_relative(folder, start, name)
            self._names[folder, start] = name
            self._worn = None
        return self._names[folder, start]

    def _load(self, folder: str, name: str) -> None:
        from peft import PeftModel

        try:
            if isinstance(self.model, PeftModel):
                self.model.load_adapter(folder, adapter_name=name)
            else:
                self.model = PeftModel.from_pretrained(self.model, folder, adapter_name=name).eval()
        except READABLE as problem:
            raise adapter_refusal(Path(folder), problem) from problem
        self.model.requires_grad_(False)

    def _load_relative(self, folder: str, start: str, name: str) -> None:
        """A checkpoint of an adapter whose beginning changed the base: its difference from that beginning, as the
        finished model was saved (core.training.saving), fits the plain base."""
        raw = f"{name}raw"
        self._load(folder, raw)
        with tempfile.TemporaryDirectory(prefix="factory-chat-") as place:
            self.model.save_pretrained(
                place, selected_adapters=[raw], path_initial_model_for_weight_conversion=start
            )
            self.model.delete_adapter(raw)
            self._load(str(Path(place) / raw), name)


def _device() -> str:
    """The GPU with most free memory, or the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return f"cuda:{free.index(max(free))}"


def _unreadable(speaker: Speaker, problem: BaseException) -> FactoryError:
    first = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
    text = f"{speaker.title} cannot be loaded ({first}); its files are not whole, or of a kind unknown to transformers."
    return refuse("model_broken", text, value=speaker.key)


def _template(tokenizer: Any) -> Template | None:
    source = tokenizer.chat_template
    if isinstance(source, dict):
        source = source.get("default")
    return Template(source, tokenizer.special_tokens_map) if source else None


def _generation(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        {name: value for name, value in told.items() if value is not None} if isinstance(told, dict) else {}
    )


def _ends(tokenizer: Any, template: Template | None, *told: dict[str, Any]) -> list[int]:
    """The end mark of the tokenizer, those of the generation configs, and what the template puts behind an answer."""
    found = [tokenizer.eos_token_id]
    for config in told:
        one = config.get("eos_token_id")
        found += one if isinstance(one, list) else [one]
    if template is not None:
        found.append(_turn_end(tokenizer, template))
    return list(dict.fromkeys(one for one in found if isinstance(one, int)))


def _turn_end(tokenizer: Any, template: Template) -> int | None:
    from data.rows import Unusable

    mark = "(the answer)"
    try:
        text = template.render([{"role": "user", "content": "?"}, {"role": "assistant", "content": mark}])
    except (Unusable, FactoryError):
        return None
    behind = text.rpartition(mark)[2].lstrip()
    special = [token for token in tokenizer.all_special_tokens if behind.startswith(token)]
    return int(tokenizer.convert_tokens_to_ids(max(special, key=len))) if special else None
