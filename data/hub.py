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
    # Plain files in a folder of our own: the hub's shared cache holds links, which are not followed.
    kept = Path(constants.HF_HOME) / "factory" / name
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
    """The files of one subset and split as a glob, by the hub's naming habits (subset folder, split in the name)."""
    base = folder / source.subset if source.subset and (folder / source.subset).is_dir() else folder
    names = [path for path in base.rglob("*") if path.suffix.lower() in DATA_ENDINGS and path.is_file()]
    named = [
        path
        for path in names
        if re.search(rf"(^|[^a-z]){re.escape(source.split)}([^a-z]|$)", path.stem.lower())
    ]
    if named and len(named) < len(names):
        common = {path.parent for path in named}
        if len(common) == 1:
            return common.pop() / f"*{source.split}*"
        return base / "**" / f"*{source.split}*"
    return base
