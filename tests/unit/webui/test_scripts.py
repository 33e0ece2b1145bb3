"""The pages' own scripts, read as text: their words exist, data never becomes markup, what was copied is unchanged."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

WEBUI = Path(__file__).resolve().parents[3] / "webui"
SCRIPTS = sorted((WEBUI / "static" / "js").rglob("*.js"))
LANGUAGES = {path.stem: json.loads(path.read_text("utf-8")) for path in (WEBUI / "text").glob("*.json")}


def asked_for() -> dict[str, set[str]]:
    """Every key that a script asks for by a literal, and the scripts that do."""
    found: dict[str, set[str]] = {}
    for path in SCRIPTS:
        for key in re.findall(r'\bt\(\s*"([a-z_0-9.]+)"', path.read_text("utf-8")):
            found.setdefault(key, set()).add(path.name)
    return found


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_word_a_script_asks_for_exists(language):
    words = LANGUAGES[language]
    asked = asked_for()
    assert len(asked) > 150
    assert {key: names for key, names in asked.items() if key not in words} == {}


def test_every_place_in_a_word_is_filled():
    missing = []
    for path in SCRIPTS:
        for key, given in re.findall(r'\bt\("([a-z_0-9.]+)"(?:, \{(.*?)\}\))?', path.read_text("utf-8")):
            places = re.findall(r"\{(\w+)\}", LANGUAGES["en"].get(key, ""))
            missing += [
                f"{path.name}: {key} {place}" for place in places if not re.search(rf"\b{place}\b", given)
            ]
    assert missing == []


def test_both_languages_fill_the_same_places():
    places = {
        name: {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in words.items()}
        for name, words in LANGUAGES.items()
    }
    differ = {key for key in places["en"] if key in places["zh"] and places["en"][key] != places["zh"][key]}
    assert differ == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_a_string(path):
    text = path.read_text("utf-8")
    assert (
        re.findall(r"\.(?:inner|outer|insertAdjacent)HTML|document\.write|\beval\(|new Function|srcdoc", text)
        == []
    )


def test_what_was_copied_is_what_its_readme_says():
    vendor = WEBUI / "static" / "vendor"
    told = dict(re.findall(r"`([\w.]+)` \| `([0-9a-f]{64})`", (vendor / "README.md").read_text("utf-8")))
    copied = [path for path in vendor.rglob("*") if path.suffix in (".js", ".css")]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in copied} == told
    assert all((folder / "LICENSE").is_file() for folder in vendor.iterdir() if folder.is_dir())
