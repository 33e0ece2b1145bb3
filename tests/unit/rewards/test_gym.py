"""gym: sources become files of prompt rows, the same ones every time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import gym
from data.errors import FactoryError
from data.settings import Source
from data.sources import resolve_one


def refusal(path, folder=None):
    with pytest.raises(FactoryError) as caught:
        gym.fetch(path, folder)
    (finding,) = caught.value.findings
    assert finding.field == "data.path" and "\n" not in finding.message
    return finding


def test_a_source_becomes_a_file_of_rows_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTORY_HOME", str(tmp_path))
    resolved = resolve_one(Source(path='gym:basic_arithmetic?size=3&seed=1&operators=["%2B"]'))
    (file,) = map(Path, resolved.files)
    assert file.parent == tmp_path / "cache" / "gym"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert len(rows) == 3 and {"prompt", "answer", "task", "metadata"} == set(rows[0])
    assert rows[0]["task"] == "basic_arithmetic" and "+" in rows[0]["prompt"] and "*" not in rows[0]["prompt"]
    assert gym.decode(rows[0]["metadata"])["source_index"] == 0
    before = file.stat().st_mtime_ns
    assert resolve_one(Source(path='gym:basic_arithmetic?size=3&seed=1&operators=["%2B"]')).files == (
        str(file),
    )
    assert file.stat().st_mtime_ns == before
    assert list(file.parent.iterdir()) == [file]


def test_the_same_words_give_the_same_rows_and_another_seed_others():
    same = [list(gym.rows(gym.parse(f"gym:leg_counting?size=5&seed={seed}"))) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gym:", "no task name"),
        ("gym:../x", "no task name"),
        ("gym:os.system", "no task name"),
        ("gym:a?size=1&&seed=2", "key=value"),
        ("gym:a?size=0", "from 1 to 100,000"),
        ("gym:a?size=1000000", "from 1 to 100,000"),
        ("gym:a?size=true", "from 1 to 100,000"),
        ("gym:a?seed=-1", "seed must be"),
        ("gym:a?x=1&x=2", "twice"),
    ],
)
def test_a_source_of_another_form_is_refused_at_once(path, said):
    assert said in refusal(path).message


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gym:basic_arithmatic", "did you mean basic_arithmetic?"),
        ("gym:basic_arithmetic?digits=2", "no setting 'digits'; it has: min_terms"),
        ("gym:basic_arithmetic?min_terms=9&max_terms=2", "max_terms must be"),
    ],
)
def test_what_the_library_does_not_know_is_refused_in_its_words(path, said):
    with pytest.raises(ValueError) as caught:
        next(gym.rows(gym.parse(path)))
    assert said in str(caught.value)


def test_a_refusal_of_the_library_reaches_the_user_and_leaves_no_file(tmp_path):
    finding = refusal("gym:basic_arithmatic", tmp_path)
    assert finding.code == "gym_refused" and "did you mean basic_arithmetic?" in finding.message
    assert list(tmp_path.iterdir()) == []


def test_rows_that_take_too_long_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(gym, "SECONDS", 0.05)
    assert "took longer than" in refusal("gym:basic_arithmetic?size=100000", tmp_path).message
    assert list(tmp_path.iterdir()) == []


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=3)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=3)
        | st.dictionaries(st.sampled_from(["()", "{}", "{:}"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(plain)
def test_metadata_survives_as_text(value):
    read = gym.decode(gym.encode(value))
    assert read == value and type(read) is type(value)


@given(st.text(max_size=80))
def test_no_text_behind_gym_is_anything_but_a_source_or_a_refusal(text):
    try:
        source = gym.parse(f"gym:{text}")
    except FactoryError as error:
        assert len(error.findings) == 1
    else:
        assert 1 <= source.size <= gym.MOST_ROWS
