"""Datasets by their names in dataset_info.json, from a training YAML of LLaMA-Factory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.job.foreign.lines import Imported
from core.job.foreign.values import meant_from, names_in
from data.errors import Finding

Values = Mapping[str, Any]


def read_data(values: Values, made: Imported, folder: Path) -> None:
    directory = Path(meant_from(str(values.get("dataset_dir", "data")), folder, always=True))
    registry = str(directory / "dataset_info.json")
    names = names_in(values.get("dataset") or "")
    take = values.get("max_samples")
    sources: list[dict[str, Any]] = [{"registry": registry, "name": name} for name in names]
    for source in sources:
        source |= {"take": int(take)} if take else {}
    if len(sources) == 1:
        for key, value in sources[0].items():
            made.put(f"data.{key}", value)
    elif sources:
        made.put("data.sources", sources)
    if names:
        words = f"names of {registry}" if len(names) == 1 else f"{len(names)} names of {registry}"
        made.tell("changed", "dataset", values["dataset"], "data.registry", words)
    if "dataset_dir" in values:
        made.tell("mapped", "dataset_dir", values["dataset_dir"], "data.registry")
    if take:
        words = "the first so many good rows of each source"
        made.tell("mapped", "max_samples", take, "data.take", words)
    _held_out(values, made, registry)
    mix = values.get("mix_strategy")
    if mix == "concat":
        made.tell("not needed", "mix_strategy", mix, None, "sources are put together whole, as there")
    elif mix is not None:
        words = "sources are put together whole; data.sources has a weight for each"
        made.tell("not mapped", "mix_strategy", mix, None, words)


def _held_out(values: Values, made: Imported, registry: str) -> None:
    size = values.get("val_size")
    if size is not None and 0 < float(size) < 1:
        made.put("data.eval", float(size))
        made.tell("mapped", "val_size", size, "data.eval")
    elif size:
        words = "held-out rows are a share here (0.05), not a number of rows; set data.eval"
        made.tell("not mapped", "val_size", size, None, words)
    elif size is not None:
        made.tell("not needed", "val_size", size, None, "0 holds nothing out")
    told = names_in(values.get("eval_dataset") or "")
    if not told:
        return
    file = _file_of(Path(registry), told[0])
    if len(told) == 1 and file is not None:
        made.put("data.eval", file)
        made.tell("changed", "eval_dataset", told[0], "data.eval", "the entry's file")
    else:
        words = f"held-out rows are one file here, and {registry} does not name it; set data.eval to its path"
        made.tell("not mapped", "eval_dataset", values["eval_dataset"], None, words)


def _file_of(registry: Path, name: str) -> str | None:
    """The file of an entry of dataset_info.json; None when that cannot be read or names none."""
    try:
        entry = json.loads(registry.read_text("utf-8"))[name]
        return str(registry.parent / entry["file_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unread_registries(job: Mapping[str, Any]) -> list[Finding]:
    """An error for each dataset_info.json that a made job names and that is not there."""
    data = job.get("data", {})
    sources = data.get("sources") or [data]
    missing = sorted(
        {one["registry"] for one in sources if "registry" in one and not _is_file(one["registry"])}
    )
    return [
        Finding(
            "foreign_registry_missing",
            f"data.registry: there is no {path}, which the datasets are named in; set dataset_dir to its folder.",
            field="data.registry",
            value=path,
        )
        for path in missing
    ]


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long, or with a null byte in it
        return False
