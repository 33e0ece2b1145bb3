"""Which files of a hub data set are read, once they are here; nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data.errors import FactoryError
from data.hub import fetch, pick_split
from data.settings import Source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two subsets with two splits each."""
    for name in ("en/train-0.parquet", "en/test-0.parquet", "de/train-0.parquet", "de/test-0.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


def found(glob: Path) -> list[str]:
    """The names that a pattern finds."""
    parent = glob.parent
    while "*" in parent.name:
        parent = parent.parent
    return sorted("/".join(path.parts[-2:]) for path in parent.glob(str(glob.relative_to(parent))))


def test_a_subset_is_a_folder_and_a_split_is_in_the_names(folder):
    assert found(pick_split(folder, Source(path="hub:a/b", subset="de", split="test"))) == [
        "de/test-0.parquet"
    ]
    assert found(pick_split(folder, Source(path="hub:a/b"))) == ["de/train-0.parquet", "en/train-0.parquet"]


@pytest.mark.parametrize(
    ("asked", "code", "known"),
    [
        ({"subset": "fr"}, "hub_subset_missing", "de, en"),
        ({"subset": "../.."}, "hub_subset_missing", "de, en"),
        ({"subset": "en", "split": "validation"}, "hub_split_missing", "test-0, train-0"),
    ],
)
def test_what_a_set_does_not_have_is_refused_and_not_read_as_all_of_it(folder, asked, code, known):
    with pytest.raises(FactoryError) as caught:
        pick_split(folder, Source(path="hub:a/b", **asked))
    (finding,) = caught.value.findings
    assert finding.code == code and known in finding.message


def test_a_split_can_be_a_folder(tmp_path):
    for name in ("data/train/0.jsonl", "data/validation/0.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for split in ("train", "validation"):
        assert pick_split(tmp_path, Source(path="hub:a/b", split=split)) == tmp_path / "data" / split


def test_a_set_without_splits_is_all_for_training(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    assert pick_split(tmp_path, Source(path="hub:a/b")) == tmp_path


def test_each_revision_lies_in_a_folder_of_its_own(tmp_path, monkeypatch):
    asked: list[dict[str, Any]] = []

    def snapshot(name: str, *, local_dir: Path, **how: Any) -> str:
        asked.append({"name": name, "local_dir": local_dir, **how})
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / "rows.jsonl").touch()
        return str(local_dir)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    folders = {fetch(Source(path="hub:a/b", revision=revision)) for revision in (None, "v1", "v2")}
    assert len(folders) == 3 and [one["revision"] for one in asked] == [None, "v1", "v2"]
