"""Data sets of the hub (`hub:org/name`): their files are fetched once and then read like any others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from data.errors import refuse
from data.files import DATA_ENDINGS
from data.settings import Source

_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")


def fetch(source: Source) -> str:
    """The folder with the files of a hub data set's split, downloaded when it is not there yet.

    Raises FactoryError when the id is none, the hub cannot be reached, or the set has no data files.
    """
    name = (source.path or "").removeprefix("hub:")
    if not _ID.fullmatch(name):
        raise refuse(
            "hub_id_broken", f"{name} is not a hub id: write hub:org/name.", field="data.path", value=name
        )
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = [f"**/*{ending}" for ending in sorted(DATA_ENDINGS)] + [
        f"*{ending}" for ending in sorted(DATA_ENDINGS)
    ]
    # Plain files in a folder of our own: the hub's shared cache holds links, which are not followed. One folder for
    # each revision, or the files of two would lie among each other.
    kept = Path(constants.HF_HOME) / "factory" / (f"{name}@{source.revision}" if source.revision else name)
    try:
        folder = snapshot_download(
            name, repo_type="dataset", revision=source.revision, allow_patterns=patterns, local_dir=kept
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise refuse(
            "hub_unreachable",
            f"The hub data set {name} cannot be fetched ({str(error).splitlines()[0][:160]}): "
            "check the name and the network, or download it and name the folder.",
            field="data.path",
            value=f"hub:{name}",
        ) from None
    return str(pick_split(Path(folder), source))


def pick_split(folder: Path, source: Source) -> Any:
    """The files of one subset and split, by the habits of the hub: a folder of that name, or a split in the names.

    Raises FactoryError for a subset that is no folder, and for a split that is in no name but train, which sets without
    splits are.
    """
    base = folder / source.subset if source.subset else folder
    if not base.resolve().is_relative_to(folder.resolve()) or not base.is_dir():
        text = _not_among("subset", source.subset, [path.name for path in folder.iterdir() if path.is_dir()])
        raise refuse("hub_subset_missing", text, field="data.subset", value=source.subset)
    own = [path for path in base.rglob("*") if path.is_dir() and path.name.lower() == source.split.lower()]
    if len(own) == 1:
        return own[0]
    names = [path for path in base.rglob("*") if path.suffix.lower() in DATA_ENDINGS and path.is_file()]
    named = [
        path
        for path in names
        if re.search(rf"(^|[^a-z]){re.escape(source.split)}([^a-z]|$)", path.stem.lower())
    ]
    if names and not named and source.split != "train":
        text = _not_among("split", source.split, [path.stem for path in names])
        raise refuse("hub_split_missing", text, field="data.split", value=source.split)
    if named and len(named) < len(names):
        common = {path.parent for path in named}
        if len(common) == 1:
            return common.pop() / f"*{source.split}*"
        return base / "**" / f"*{source.split}*"
    return base


def _not_among(field: str, value: str | None, there: list[str]) -> str:
    known = ", ".join(sorted({name for name in there if not name.startswith(".")})[:12])
    has = f"which has {known or 'none'}"
    return f"data.{field} {value} is not in this hub data set, {has}; take one of those, or leave it out."
