"""Model: a reward model, trained by our own reward stage or in a folder, gives every answer a number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from core.job.base import unit
from core.job.models import check_folder, read_config
from core.rewards.base import Columns, RewardSpec, Scorer, Setting, short, values
from data.errors import FactoryError, Finding, refuse
from data.userpath import user_path


class Spec(RewardSpec):
    """How good does a trained reward model find it? Its scores have no fixed scale: mind the weight."""

    name: Literal["model"] = "model"
    """The reward."""
    source: str = Field(min_length=1, max_length=4096)
    """A finished run of the reward stage, by its id, or the folder of a sequence classifier with one label."""
    batch_size: int = Field(8, ge=1, le=65_536, json_schema_extra=unit("answers"))
    """Answers in one forward pass."""
    max_length: int | None = Field(None, ge=8, le=1_048_576, json_schema_extra=unit("tokens"))
    """Longer prompts with answers get no score, and a warning. Empty: what the model can read."""
    center: float = Field(0.0, ge=-1e6, le=1e6)
    """Taken off every score, so that an average answer gets 0."""

    range: ClassVar[str] = "any number"
    cheap: ClassVar[bool] = False


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer of the model's raw scores. The weights are loaded when the first answers come.

    Raises FactoryError when the run or folder holds no reward model.
    """
    folder = find_model(spec.source, setting.home)
    check_reward_model(folder, spec.source)
    return ModelScorer(spec, folder, setting)


def find_model(source: str, home: Path) -> Path:
    """The folder of a run's model, by the run's id or an unambiguous part of it, or the folder itself."""
    path = user_path(source)
    if path.is_dir():
        return path
    runs = home / "runs"
    plain = "/" not in source and source not in (".", "..")
    same = sorted(run for run in runs.iterdir() if source in run.name) if plain and runs.is_dir() else []
    exact = [run for run in same if run.name == source] or same
    if len(exact) == 1 and (exact[0] / "model" / "COMPLETE.json").is_file():
        return exact[0] / "model"
    if len(exact) == 1:
        why = f"the run {exact[0].name} has not delivered a model; let it finish"
    elif exact:
        why = f"{short(source)} fits several runs ({', '.join(run.name for run in exact[:5])}); give more of the id"
    else:
        why = f"{short(source)} is neither a folder nor a run; `factory runs` lists the runs"
    raise refuse("reward_model_not_found", f"the reward model: {why}.", field="source", value=source)


def check_reward_model(folder: Path, source: str) -> None:
    """Raises FactoryError unless the folder holds safetensors of a classifier with one label, or such an adapter."""
    adapter = _adapter(folder)
    if adapter is not None:
        if adapter.get("task_type") != "SEQ_CLS":
            raise _not_a_scorer(source, f"its adapter is of the kind {adapter.get('task_type')}")
        return
    try:
        check_folder(folder)
        config = read_config(folder)
    except FactoryError as error:
        raise refuse(
            "reward_model_broken",
            f"the reward model: {error.findings[0].message}",
            field="source",
            value=source,
        ) from None
    kinds = [str(one) for one in config.get("architectures") or []]
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        raise _not_a_scorer(source, f"it is a {', '.join(kinds) or 'model without a named kind'}")
    labels = config.get("num_labels") or len(config.get("id2label") or (0, 1))
    if labels != 1:
        raise _not_a_scorer(source, f"it has {labels} labels")


def _adapter(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "adapter_config.json"
    if not path.is_file() or not (folder / "adapter_model.safetensors").is_file():
        return None
    adapter: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return adapter


def _not_a_scorer(source: str, why: str) -> FactoryError:
    return refuse(
        "not_a_reward_model",
        f"{short(source)} is no reward model: {why}; it must be a sequence classifier with one label, such as the "
        "reward stage trains.",
        field="source",
        value=source,
    )


class ModelScorer:
    """Renders, tokenises and scores, with the very tokens that the reward stage trains on: one BOS, one template."""

    def __init__(self, spec: Spec, folder: Path, setting: Setting) -> None:
        self._spec, self._folder, self._setting = spec, folder, setting
        self._loaded: tuple[Any, Any, Any] | None = None

    def __call__(self, completions: Sequence[str], columns: Columns) -> list[float | None]:
        asked = values(columns, "messages", len(completions)) if "messages" in columns else None
        prompts = asked or values(columns, "prompt", len(completions))
        every = [self.ids(prompt or "", text) for prompt, text in zip(prompts, completions, strict=True)]
        most = self.longest()
        fit = [row for row, ids in enumerate(every) if len(ids) <= most]
        if len(fit) < len(every):
            self.tell_too_long(len(every) - len(fit), len(every), most)
        scores: list[float | None] = [None] * len(every)
        # Rows of like length share a batch, so that little is padded.
        fit.sort(key=lambda row: len(every[row]))
        for start in range(0, len(fit), self._spec.batch_size):
            rows = fit[start : start + self._spec.batch_size]
            for row, score in zip(rows, self._forward([every[row] for row in rows]), strict=True):
                scores[row] = score - self._spec.center
        return scores

    @property
    def center(self) -> float:
        """What is taken off every score."""
        return self._spec.center

    def longest(self) -> int:
        """Most tokens of a prompt with its answer that get a score."""
        model, _, _ = self._ready()
        return int(self._spec.max_length or getattr(model.config, "max_position_embeddings", None) or 1 << 30)

    def parts(self) -> tuple[Any, Path]:
        """The model, loaded, and its folder, for a stage that has the token ids already."""
        return self._ready()[0], self._folder

    def ids(self, prompt: Any, completion: str) -> list[int]:
        """Token ids of a prompt (text or turns) with its answer, as data.render gives them to the reward stage."""
        from data.rows import Unusable

        _, renderer, encoder = self._ready()
        answer: Any = completion
        if not isinstance(prompt, str):
            answer = [{"role": "assistant", "content": completion}]
        try:
            pieces = renderer.sequences({"prompt": prompt, "chosen": answer, "rejected": answer})[0]
        except Unusable:  # an empty answer: no row to learn from, but one to score
            pieces = self._whole(prompt)
        texts = [text for text, _ in pieces]
        ids, _ = encoder.encode(texts, [False, *[True] * (len(texts) - 1)])
        return [int(one) for one in ids]

    def _whole(self, prompt: Any) -> Any:
        from data.render import Renderer, as_turns

        _, renderer, _ = self._ready()
        turns = [*as_turns(prompt, "user"), {"role": "assistant", "content": ""}]
        return Renderer(renderer.voice, "all").sequences({"messages": turns})[0]

    def _forward(self, batch: list[list[int]]) -> list[float]:
        """Raw scores of right-padded rows; the classifier reads the last token that is not padding."""
        import torch

        model, _, _ = self._ready()
        length = max(len(ids) for ids in batch)
        pad = model.config.pad_token_id
        ids = torch.tensor([row + [pad] * (length - len(row)) for row in batch], device=model.device)
        mask = torch.tensor(
            [[1] * len(row) + [0] * (length - len(row)) for row in batch], device=model.device
        )
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask).logits  # (rows, 1)
        return [float(score) for score in logits[:, 0].float().cpu()]

    def _ready(self) -> tuple[Any, Any, Any]:
        """Model, renderer and encoder, loaded once."""
        if self._loaded is None:
            from data.render import Renderer
            from data.tokens import Encoder
            from data.voice import Voice

            model, tokenizer = load(self._folder, self._spec.source, self._setting.device)
            # Which of the two encoders is used makes no difference to ids, so nobody needs to hear of it.
            encoder = Encoder(
                tokenizer, lambda finding: None, self._setting.home / "cache" / "rows" / "proofs"
            )
            self._loaded = model, Renderer(Voice.of(tokenizer)), encoder
        return self._loaded

    def tell_too_long(self, count: int, of: int, most: int) -> None:
        """Warn of answers without a score."""
        self._setting.emit(
            Finding(
                "reward_model_too_long",
                f"{count} of {of} answers are with their prompt longer than the reward model can read ({most:,} "
                "tokens); they get no score.",
                "warning",
                "rewards",
                params={"reward": "model", "rows": count, "of": of},
            )
        )


def load(folder: Path, source: str, device: str) -> tuple[Any, Any]:
    """The classifier in evaluation mode on `device`, and its tokenizer; fp32 on a CPU, bf16 elsewhere.

    Raises FactoryError when they cannot be loaded, or the tokenizer has tokens that the model does not know.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    adapter = _adapter(folder)
    base = Path(adapter["base_model_name_or_path"]) if adapter is not None else folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        model = AutoModelForSequenceClassification.from_pretrained(
            base,
            num_labels=1,
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
        )
        if adapter is not None:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, folder, use_safetensors=True)
    except (OSError, ValueError, KeyError, ImportError) as problem:
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]
        raise refuse(
            "reward_model_broken",
            f"the reward model {short(source)} cannot be loaded ({first}); copy it again.",
            field="source",
            value=source,
        ) from problem
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise refuse(
            "reward_model_tokenizer",
            f"the reward model {short(source)} knows {known:,} tokens and its tokenizer has {len(tokenizer):,}: the "
            "tokenizer is another model's; put the one it was trained with into its folder.",
            field="source",
            value=source,
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return model.to(device).eval(), tokenizer
