"""The home folder: local, ours, and of a version we know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.runs import home
from core.runs.folder import home_folder
from data.errors import FactoryError

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 22 0:41 / /home/ann/fast\\040disk rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/share rw shared:7 - cifs //nas/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/factory", "ext4"),
        ("/home/ann/factory", "nfs4"),
        ("/home/ann/fast disk/factory", "xfs"),
        ("/mnt/share/x/y", "cifs"),
        ("/homely", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert home.file_system(Path(path), MOUNTS) == kind


def test_a_home_on_a_network_is_refused_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "file_system", lambda path: "nfs4")
    with pytest.raises(FactoryError, match=r"network file system \(nfs4\).*--force-home"):
        home.open_home(tmp_path / "h")
    assert not (tmp_path / "h").exists()
    home.open_home(tmp_path / "h", force=True)
    assert json.loads((tmp_path / "h" / "home.json").read_text("utf-8")) == {"version": home.VERSION}


def test_a_home_of_a_newer_version_is_refused_for_readers_and_writers(tmp_path: Path) -> None:
    (tmp_path / "home.json").write_text('{"version": 99}', encoding="utf-8")
    for use in (home.check_home, home.open_home):
        with pytest.raises(FactoryError, match="newer Factory \\(layout 99, this one knows 1\\)"):
            use(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "1"}'])
def test_a_damaged_home_file_is_said_to_be_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "home.json").write_text(content, encoding="utf-8")
    with pytest.raises(FactoryError, match="is damaged"):
        home.check_home(tmp_path)


def test_a_home_that_is_not_there_yet_is_fine_and_not_made_by_looking(tmp_path: Path) -> None:
    home.check_home(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_place_of_the_home_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "h").touch()
    with pytest.raises(FactoryError, match="a file is where a folder is needed"):
        home.open_home(tmp_path / "h")


def test_the_home_is_explicit_or_by_environment_or_in_the_users_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FACTORY_HOME", "/srv/f")
    assert home_folder(Path("/x")) == Path("/x")
    assert home_folder() == Path("/srv/f")
    monkeypatch.delenv("FACTORY_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert home_folder() == Path("/home/ann/factory")
