"""`~somebody` in any path a user writes: in full where there is such a user, a plain name where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.job.load import parse_job
from core.job.models import adapter_folder, locate
from core.job.places import absolute
from core.rewards.model import find_model
from data.errors import FactoryError
from data.files import find_files
from data.registry import from_registry
from data.settings import Source
from data.userpath import user_path
from webui.jail import placed
from webui.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "~nobody-of-this-name"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("a/~/x", "a/~/x"),
        (NOBODY, NOBODY),
        (f"{NOBODY}/x", f"{NOBODY}/x"),
        ("~.jsonl", "~.jsonl"),
        ("/a", "/a"),
        ("", "."),
    ],
)
def test_a_tilde_is_put_in_full_or_is_a_plain_name(monkeypatch, written, meant):
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path(written) == user_path(Path(written)) == Path(meant)


@pytest.mark.parametrize("name", [NOBODY, f"{NOBODY}/x.jsonl", "~.jsonl"])
@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda name, home: find_files(name), "data_not_found"),
        (lambda name, home: from_registry(Source(registry=name, name="a")), None),
        (lambda name, home: locate(name, home), None),
        (lambda name, home: adapter_folder(name), "adapter_not_found"),
        (lambda name, home: find_model(name, home), None),
        (lambda name, home: placed(_job(data=name), Settings(home=home, port=1)), None),
        (lambda name, home: placed(_job(model=name), Settings(home=home, port=1)), "path_outside"),
    ],
)
def test_nobodys_folder_is_refused_in_words(tmp_path, monkeypatch, name, ask, code):
    monkeypatch.chdir(tmp_path)
    try:
        ask(name, tmp_path)
    except FactoryError as refusal:
        assert code in (None, refusal.findings[0].code)
    else:
        assert code is None


def test_a_file_of_such_a_name_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "~x.jsonl"
    file.write_text('{"text": "a"}\n')
    assert find_files("~x.jsonl").files == [Path("~x.jsonl")]
    assert absolute(_job(data="~x.jsonl")).data.path == str(file)


def test_no_other_code_puts_a_tilde_in_full():
    own = {"data/userpath.py", "core/runs/folder.py"}
    found = {
        str(path.relative_to(ROOT))
        for folder in ("core", "data", "webui")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\.expanduser\(", path.read_text("utf-8"))
    }
    assert found == own


def _job(model: str = "smollm2-135m", data: str = "a.jsonl"):
    return parse_job(f'model: "{model}"\ndata: "{data}"\nstage: sft\n')
