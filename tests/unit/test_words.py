"""How numbers are written for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.job.load import parse_job
from data.errors import FactoryError
from data.words import byte_size, number


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (112_620.43, "112,620"),
        (1_000_000, "1,000,000"),
        (2.30214, "2.3021"),
        (0.0412345, "0.0412"),
        (0.00012345, "0.000123"),
        (2e-5, "2e-05"),
        (0.0, "0"),
        (-3.5, "-3.5000"),
        (12.0, "12"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (3.2e20, "3.2e+20"),
    ],
)
def test_a_measured_value_reads_as_people_write_it(value: float, words: str):
    assert number(value) == words


@given(st.floats(-1e300, 1e300) | st.just(math.nan))
def test_every_number_keeps_its_size(value: float):
    read = float(number(value).replace(",", ""))
    assert math.isnan(read) if math.isnan(value) else math.isclose(read, value, rel_tol=0.01)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1 << 10, "1.0 KiB"), (20 << 20, "20.0 MiB"), (312 << 20, "312 MiB")]
    + [(int(1.4 * 2**30), "1.4 GiB"), (200 << 30, "200 GiB"), (3 << 40, "3.0 TiB")],
)
def test_a_size_is_never_rounded_to_nothing(count: int, words: str):
    assert byte_size(count) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: ''\ndata: r.jsonl\nstage: sft\n", "model must not be empty ("),
        ("model: m\ndata: ''\nstage: sft\n", "data must not be empty ("),
        (
            f"model: {'a' * 5000}\ndata: r.jsonl\nstage: sft\n",
            "model is too long: 5,000 characters, and at most 4,096",
        ),
        ("model: m\ndata: [1]\nstage: sft\n", "data[0] must be text or a group of settings; got 1 ("),
    ],
)
def test_an_empty_a_too_long_and_a_foreign_value_are_told_as_that(text: str, said: str) -> None:
    with pytest.raises(FactoryError) as refused:
        parse_job(text)
    (finding,) = refused.value.findings
    assert finding.message.startswith(said)
