# ruff: noqa: E501 - rows of data
"""Any file to records: content beats the name, encodings and delimiters are found, any bytes give rows or a refusal."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.encoding import guess_encoding
from data.errors import FactoryError
from data.files import find_files
from data.read import read_file
from data.readers.delimited import sniff_dialect
from data.rows import Unusable
from data.settings import Source
from tests.unit.data.helpers import flow


def records(path: Path, **source):
    opened = read_file(path, Source(**source))
    try:
        return [record for _, record in opened.items], opened
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain ascii", "utf-8"),
        ("Grüße, 你好 🙂", "utf-8"),
        ("Grüße aus Köln, schöne Straße, à bientôt", "cp1252"),
        ("你好，世界。三座桥，最老的是石桥。", "gb18030"),
        ("こんにちは、ありがとう", "shift_jis"),
        ("Привет, как дела? Хорошо, спасибо.", "cp1251"),
        ("ä,ö\n1,2\n", "utf-16"),
        ("abc,def\n", "utf-16-le"),
        ("abc,def\n", "utf-16-be"),
    ],
)
def test_encodings_are_told_apart(text, encoding):
    assert guess_encoding(text.encode(encoding)) == encoding


def test_a_byte_order_mark_decides():
    assert guess_encoding(b"\xef\xbb\xbfa") == "utf-8-sig"


def test_bytes_outside_the_encoding_are_replaced_and_noted(tmp_path):
    file = tmp_path / "a.jsonl"
    good = b'{"prompt": "a", "completion": "b"}\n' * 10_000
    file.write_bytes(good + '{"prompt": "Grüße", "completion": "b"}\n'.encode("latin-1"))
    made, opened = records(file)
    assert made[-1]["prompt"] == "Gr\ufffd\ufffde" and opened.notes == {"bad_bytes": [10_001]}


@pytest.mark.parametrize(
    ("text", "delimiter", "quoted", "columns"),
    [
        ("a,b\n1,2\n", ",", True, 2),
        ("a;b;c\n1;2;3\n4;5;6\n", ";", True, 3),
        ("a\tb\nx\ty\n", "\t", True, 2),
        ('a\tb\n"hi" say\ty\n', "\t", False, 2),
        ("a|b\n1|2\n", "|", True, 2),
        ('q;a\n"x; y";"two\nlines"\n', ";", True, 2),
        ("a,b\n1;2,3;4\n5;6,7;8\n", ",", True, 2),
    ],
)
def test_dialects_are_told_apart(text, delimiter, quoted, columns):
    dialect = sniff_dialect(text)
    assert (dialect.delimiter, dialect.quoted, dialect.columns) == (delimiter, quoted, columns)


def test_prose_is_no_table():
    assert sniff_dialect("A line of prose.\nAnd another, with a comma.\nThe end.\n") is None


def test_markdown_with_pipes_stays_text(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("| a | b |\n| - | - |\n| 1 | 2 |\n")
    made, opened = records(file)
    assert opened.kind == "text" and made == [{"text": file.read_text()}]


def test_a_text_file_is_one_document_or_one_a_line_or_a_paragraph(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("One.\nTwo.\n\nThree.\n")
    for documents, texts in {
        "file": ["One.\nTwo.\n\nThree.\n"],
        "paragraph": ["One.\nTwo.", "Three."],
        "line": ["One.", "Two.", "Three."],
    }.items():
        rows, _ = flow(file, "pretrain", documents=documents)
        assert [row["text"] for row in rows] == texts


def test_a_long_document_comes_in_pieces_and_loses_nothing(tmp_path):
    text = "".join(f"line {n}\n" for n in range(300_000))
    file = tmp_path / "a.txt"
    file.write_text(text)
    made, _ = records(file)
    assert len(made) > 1 and "".join(record["text"] for record in made) == text


def test_json_arrays_are_streamed_and_broken_ones_keep_what_was_good(tmp_path, monkeypatch):
    import data.readers.json_rows as json_rows

    rows = [{"prompt": f"p{n}", "completion": "c" * n} for n in range(2000)]
    text = json.dumps(rows, indent=1)
    file = tmp_path / "a.json"
    file.write_text(text)
    whole, _ = records(file)
    monkeypatch.setattr(json_rows, "MAX_WHOLE_JSON", 1000)
    assert records(file)[0] == whole == rows
    file.write_text(text[: len(text) // 2])
    kept, _ = records(file)
    assert kept[:-1] == rows[: len(kept) - 1] and isinstance(kept[-1], Unusable)
    file.write_text(text.replace('"p7"', "oops"))
    kept, _ = records(file)
    assert sum(isinstance(one, Unusable) for one in kept) == 1 and len(kept) == 2000


def test_a_wrong_name_does_not_matter(tmp_path):
    row = {"prompt": "a", "completion": "b"}
    for name in ("a.csv", "a.txt", "a.parquet", "a.json", "a"):
        (tmp_path / name).write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
        assert records(tmp_path / name)[0] == [row, row]
    (tmp_path / "b.csv").write_bytes(gzip.compress(b"prompt,completion\na,b\n"))
    assert records(tmp_path / "b.csv")[0] == [row]


def test_an_encoding_and_a_delimiter_can_be_set(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("prompt~completion\nä~b\n".encode("latin-1"))
    assert records(file, delimiter="~", encoding="latin-1")[0] == [{"prompt": "ä", "completion": "b"}]


def test_globs_and_folders_are_sorted_and_misses_name_what_is_near(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        (tmp_path / name).write_text("{}")
    assert [path.name for path in find_files(str(tmp_path / "*.jsonl")).files] == ["a.jsonl", "b.jsonl"]
    with pytest.raises(FactoryError, match="did you mean .*a.jsonl"):
        find_files(str(tmp_path / "a.json"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FactoryError, match="holds no data file"):
        find_files(str(tmp_path / "empty"))


NAMES = st.sampled_from(
    ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.txt", "a.md", "a.parquet", "a.gz", "a.xlsx", "a"]
)
PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b'"', b",", b"\n", b"\r\n", b";", b"\t", b"|", b":", b"\\", b"\\ud83d", b"prompt", b"completion",
     b"null", b"1e999", b"NaN", b"\xff", b"\x00", b"\xef\xbb\xbf", b"PAR1", b"\x1f\x8b\x08", b"PK\x03\x04", b"ARROW1",
     b'{"prompt": "a", "completion": "b"}', b'{"messages": [{"role": "user", "content": "x"}]}', b"prompt,completion\n"]
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, parts=st.lists(st.one_of(PIECES, st.binary(max_size=40)), max_size=30))
def test_any_bytes_give_rows_or_a_refusal(tmp_path, name, parts):
    file = tmp_path / name
    file.write_bytes(b"".join(parts))
    with contextlib.suppress(FactoryError):
        rows, made = flow(file)
        for info in made.files:
            assert info.tally.read == info.tally.kept + sum(info.tally.reasons.values())


WORDS = st.sampled_from(
    "prompt completion chosen rejected messages conversations role content from value text label tools history instruction input "
    "output system answer question id parent_id rank score replies choices A B answers paragraphs qas context winner answer_a answer_b".split()
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=200, deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.dictionaries(WORDS, JSON, max_size=6), min_size=1, max_size=4),
    stage=st.sampled_from(["sft", "dpo", "kto", "grpo", "pretrain"]),
)
def test_any_json_rows_give_rows_or_a_refusal(tmp_path, rows, stage):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.suppress(FactoryError):
        _, made = flow(file, stage)
        for info in made.files:
            assert info.tally.read == info.tally.kept + sum(info.tally.reasons.values())
