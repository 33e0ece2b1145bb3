"""LLaMA-Factory's dataset_info.json, read as it is: an entry becomes a source.

Its fields (file_name, hf_hub_url, subset, split, folder, num_samples, columns, tags, ranking, formatting) are
documented in that project's data/README.md.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from data.errors import refuse
from data.settings import Source
from data.userpath import user_path

_WORDS = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "history": "history",
    "system": "system",
    "tools": "tools",
    "messages": "messages",
    "chosen": "chosen",
    "rejected": "rejected",
    "kto_tag": "label",
    "images": "images",
    "videos": "images",
    "audios": "images",
}
_MAX = 4 * 2**20


def from_registry(source: Source) -> Source:
    """The source that an entry of a registry means. Raises FactoryError for a missing entry, naming close ones."""
    path = user_path(source.registry or "")
    entry = _entry(path, source.name)
    columns = {**_columns(entry), **source.columns}
    made = replace(source, registry=None, name=None, columns=columns)
    if entry.get("file_name"):
        folder = path.parent
        return replace(
            made, path=str(folder / str(entry["file_name"])), take=source.take or entry.get("num_samples")
        )
    if entry.get("hf_hub_url"):
        return replace(
            made,
            path=f"hub:{entry['hf_hub_url']}",
            subset=source.subset or entry.get("subset"),
            split=entry.get("split") or source.split,
            take=source.take or entry.get("num_samples"),
        )
    raise refuse(
        "registry_entry_unsupported",
        f"The entry {source.name} of {path.name} names neither a file nor a hub data set "
        f"(it has {', '.join(entry)}): name the data with data.path.",
        field="data.name",
        value=source.name,
    )


def _entry(path: Path, name: str | None) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            registry = orjson.loads(stream.read(_MAX))
    except OSError as error:
        raise refuse(
            "registry_missing",
            f"The registry {path} cannot be read ({error.strerror}).",
            field="data.registry",
        ) from None
    except orjson.JSONDecodeError as error:
        raise refuse(
            "registry_broken", f"The registry {path} is not JSON ({error}).", field="data.registry"
        ) from None
    if not isinstance(registry, dict) or not all(isinstance(entry, dict) for entry in registry.values()):
        raise refuse(
            "registry_broken",
            f"{path.name} is not a dataset_info.json: it should map names to entries.",
            field="data.registry",
        )
    if name not in registry:
        close = difflib.get_close_matches(name or "", registry, 3)
        listed = ", ".join(close or list(registry)[:8])
        raise refuse(
            "registry_entry_missing",
            f"{path.name} has no entry {name}: name one of its {len(registry)} entries with data.name ({listed}, ...).",
            field="data.name",
            value=name,
        )
    entry: dict[str, Any] = registry[name]
    return entry


def _columns(entry: dict[str, Any]) -> dict[str, str]:
    """Our words for the entry's columns; names for keys inside turns (tags) are found by themselves."""
    given = entry.get("columns") or {}
    return {_WORDS.get(word, word): str(name) for word, name in given.items() if isinstance(name, str)}
