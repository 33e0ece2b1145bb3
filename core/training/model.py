"""Tokenizer, chat template and weights, from safetensors only and never with code from a model folder."""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from core.job.models import ModelPlace, adapter_folder, check_folder, locate
from core.job.spec import JobSpec, ModelSpec
from core.methods import ADAPTERS, method_module
from core.training import padding_free
from core.training.saving import commit_folder
from data.errors import FactoryError, refuse
from data.userpath import user_path

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "chat"


def model_folder(spec: ModelSpec, home: Path) -> Path:
    """The folder of a loadable model, unpacking an embedded one or fetching a hub one first.

    Raises FactoryError when it is not a whole model, or is not here and the hub cannot be reached.
    """
    place = locate(spec.name, home, revision=spec.revision)
    if place.gguf is not None:
        return unpack_embedded(place, home)
    folder = place.folder or _fetch(spec)
    check_folder(folder)
    return folder


def load_tokenizer(spec: ModelSpec, home: Path) -> Any:
    """The model's tokenizer with the job's chat template, and a padding token for models without one."""
    tokenizer = load_tokenizer_of(model_folder(spec, home), named=spec.name)
    if spec.template is not None:
        tokenizer.chat_template = read_template(spec.template)
    return tokenizer


def load_tokenizer_of(folder: Path, *, named: str | None = None) -> Any:
    """The tokenizer in a folder, with a padding token. Raises FactoryError when it cannot be loaded."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, StrictDataclassError) as problem:
        raise refuse(
            "tokenizer_broken",
            f"the tokenizer in {str(folder)!r} cannot be loaded ({_first_line(problem)}); copy the model again.",
            field="model.name",
            value=named or str(folder),
        ) from problem
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def read_template(name: str) -> str:
    """The text of a chat template: a name from templates/chat or a .jinja file."""
    bundled = TEMPLATES / f"{name}.jinja"
    path = bundled if bundled.is_file() else user_path(name)
    if not path.is_file():
        known = ", ".join(sorted(template.stem for template in TEMPLATES.glob("*.jinja")))
        raise refuse(
            "template_not_found",
            f"chat template {name!r} is neither a file nor one of: {known}.",
            field="model.template",
            value=name,
        )
    return path.read_text("utf-8")


_KINDS = {"CAUSAL_LM": AutoModelForCausalLM, "SEQ_CLS": AutoModelForSequenceClassification}


def load_model(job: JobSpec, home: Path, *, gpu: bool, task: str = "CAUSAL_LM") -> Any:
    """The model of the job, on the CPU in fp32 or for a GPU in the precision of the job.

    `task` in peft's words: CAUSAL_LM, or SEQ_CLS for a classifier with one label (its head is new, drawn at random).

    Weights that train in full stay fp32 and are computed in bf16 by autocast; frozen bases are held in bf16.
    """
    folder = model_folder(job.model, home)
    attention = {} if job.model.attention == "auto" else {"attn_implementation": job.model.attention}
    try:
        model = _KINDS[task].from_pretrained(
            folder,
            dtype=dtype_of(job, gpu=gpu),
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            **({"num_labels": 1} if task == "SEQ_CLS" else {}),
            **method_module(job.method.name).loading(job.method, gpu=gpu),
            **attention,
        )
    except (OSError, ValueError, KeyError, ImportError, StrictDataclassError) as problem:
        raise broken(job, problem) from problem
    _keep_trainable(model)
    if job.model.adapter is not None and job.method.name not in ADAPTERS:
        model = _merged(model, adapter_folder(job.model.adapter))
    if (
        job.train.padding_free and job.train.neftune_alpha is None
    ):  # NEFTune's noise hangs on the padded length
        if (reason := padding_free.install(model)) is not None:
            sys.stdout.write(f"padding is not skipped: {reason}\n")
    model.config.use_cache = False  # training never reads a cache; generation asks for one itself
    return model


def broken(job: JobSpec, problem: BaseException) -> FactoryError:
    """What to say when the model of a job cannot be loaded."""
    return refuse(
        "model_broken",
        f"model {job.model.name!r} cannot be loaded ({_first_line(problem)}); see log.txt for the details.",
        field="model.name",
        value=job.model.name,
    )


def _keep_trainable(model: Any) -> None:
    """Keep 4-bit layers in the form that gradients pass through.

    bitsandbytes 0.50 repacks them for inference at the first forward in eval mode on a CPU with AVX512-BF16, for good:
    an evaluation in the middle of training would stop the gradients and round the base differently from then on.
    Can go when its packed layers take part in backward.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def adapter_refusal(adapter: Path, problem: BaseException) -> FactoryError:
    """What to say when a trained adapter does not go onto the model."""
    return refuse(
        "adapter_mismatch",
        f"the adapter in {str(adapter)!r} does not fit the model ({_first_line(problem)}); set model.name to the base "
        "it was trained on.",
        field="model.adapter",
        value=str(adapter),
    )


def _merged(model: Any, adapter: Path) -> Any:
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (RuntimeError, ValueError, OSError, KeyError) as problem:
        raise adapter_refusal(adapter, problem) from problem


def dtype_of(job: JobSpec, *, gpu: bool) -> torch.dtype:
    """The precision in which the weights are held."""
    precision = job.hardware.precision
    half = precision == "bf16" or (precision == "auto" and gpu and torch.cuda.is_bf16_supported())
    return torch.bfloat16 if half and job.method.name != "full" else torch.float32


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:300]


def _fetch(spec: ModelSpec) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt"]
    try:
        return Path(snapshot_download(spec.name, revision=spec.revision, allow_patterns=patterns))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as problem:
        raise refuse(
            "model_not_reachable",
            f"model {spec.name!r} is not on this machine and the hub did not give it ({_first_line(problem)}); "
            "check the name and the network, or use a local folder or the embedded smollm2-135m.",
            field="model.name",
            value=spec.name,
        ) from problem


def unpack_embedded(place: ModelPlace, home: Path) -> Path:
    """Save an embedded GGUF model once as safetensors under `home/models`; the folder appears whole or not at all.

    Two runs that start together unpack it once: the second waits for the first.
    """
    assert place.gguf is not None
    target = home / "models" / place.name
    with _locked(home / "models" / f".{place.name}.lock"):
        if (target / "COMPLETE.json").is_file():
            return target
        temporary = target.with_name(f".tmp-{place.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            _convert_gguf(place.gguf, temporary)
            commit_folder(temporary, target, {"model": place.name, "from": place.gguf.name})
        except OSError as problem:
            shutil.rmtree(temporary, ignore_errors=True)
            raise refuse(
                "unpack_failed",
                f"model {place.name!r} could not be unpacked into {str(target)!r} ({_first_line(problem)}); "
                "it needs 0.6 GB: free space, or set another home folder with --home.",
                field="model.name",
                value=place.name,
            ) from problem
    return target


def _convert_gguf(gguf: Path, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # transformers 5.17 dequantises the weights to plain fp32 but still marks the model as quantised, and then
    # refuses to save it. Can go when save_pretrained accepts a dequantised GGUF model.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The special tokens come out of transformers 5.17's GGUF tokenizer with the begin mark as end mark; the model's
    # config has the right ids. Can go when AutoTokenizer reads tokenizer.ggml.eos_token_id for this family.
    tokenizer.clean_up_tokenization_spaces = False  # meant for WordPiece; transformers warns about it for BPE
    for role in ("bos", "eos", "pad"):
        token_id = getattr(model.config, f"{role}_token_id")
        tokenizer.init_kwargs.pop(f"{role}_token_id", None)
        if token_id is not None:
            setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(token_id))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except OSError as problem:
        raise refuse(
            "home_not_writable",
            f"the home folder {str(path.parent.parent)!r} cannot be written ({_first_line(problem)}); "
            "choose another one with --home or FACTORY_HOME.",
        ) from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
