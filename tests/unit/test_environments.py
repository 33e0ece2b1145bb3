"""What can be installed beside Factory: files that say what they are, and one command that really installs."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from core.cli import main
from core.job import environments
from data.errors import FactoryError

HEAD = "# A little package, for tests\n# into: {into}\n# takes: 1 MB\n\n"


def wheel(folder: Path) -> Path:
    """A package `littlething` with one module, as a wheel."""
    path = folder / "littlething-1.0-py3-none-any.whl"
    info = "littlething-1.0.dist-info"
    files = {
        "littlething.py": "WORD = 'here'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: littlething\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (*files.items(), (f"{info}/RECORD", record)):
            archive.writestr(name, text)
    return path


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """An envs folder of our own."""
    folder = tmp_path / "envs files"
    folder.mkdir()
    monkeypatch.setattr(environments, "FOLDER", folder)
    return folder


def test_every_file_of_envs_says_what_it_is():
    found = environments.environments()
    assert found
    for one in found:
        assert one.about and one.takes > 0 and one.packages and "==" in one.packages[0]


def test_an_unknown_name_is_refused_with_the_names_there_are(capsys):
    assert main(["env", "install", "nothing"]) == 2
    told = capsys.readouterr().err
    assert "'nothing'" in told and all(one.name in told for one in environments.environments())


def test_it_is_installed_into_an_environment_of_its_own_and_known_afterwards(files, tmp_path, capfd):
    (files / "little.txt").write_text(HEAD.format(into="own") + f"{wheel(tmp_path)}\n")
    home = tmp_path / "home"
    home.mkdir()
    assert main(["--home", str(home), "env", "install", "little"]) == 0
    python = home / "envs" / "little" / "bin" / "python"
    said = subprocess.run(
        [python, "-c", "import littlething; print(littlething.WORD)"], capture_output=True, text=True
    )
    assert said.stdout == "here\n"
    capfd.readouterr()
    assert main(["--home", str(home), "env", "list", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["installed"] is True
    assert main(["--home", str(home), "env", "install", "little"]) == 0
    assert "installed already" in capfd.readouterr().out
    (files / "little.txt").write_text(HEAD.format(into="own") + f"{wheel(tmp_path)}  # changed\n")
    assert not environments.environment("little").installed(home)


def test_in_the_main_environment_no_pin_may_move(files, tmp_path):
    (files / "little.txt").write_text(HEAD.format(into="main") + "littlething==1.0\n")
    (command,) = environments.environment("little").commands(tmp_path)
    assert command[command.index("--constraint") + 1].endswith("requirements.txt")


def test_what_is_built_from_source_may_see_our_packages(files, tmp_path):
    head = HEAD.format(into="main").replace("# takes", "# build: with ours\n# takes")
    (files / "little.txt").write_text(head + "littlething==1.0\n")
    (command,) = environments.environment("little").commands(tmp_path)
    assert "--no-build-isolation" in command and "--constraint" in command


def test_a_failing_pip_is_one_sentence_and_leaves_no_stamp(files, tmp_path, capfd):
    (files / "little.txt").write_text(HEAD.format(into="own") + "./not-there-1.0-py3-none-any.whl\n")
    assert main(["--home", str(tmp_path), "env", "install", "little"]) == 2
    assert "Installing little failed" in capfd.readouterr().err
    assert not environments.environment("little").installed(tmp_path)


def test_a_disk_without_room_is_told_before_anything_is_fetched(files, tmp_path):
    (files / "little.txt").write_text(
        HEAD.format(into="own").replace("1 MB", "900000 GB") + "littlething==1.0\n"
    )
    with pytest.raises(FactoryError, match="takes 900000.0 GB"):
        environments.install(environments.environment("little"), tmp_path)
    assert not (tmp_path / "envs").exists()
