# ruff: noqa: E501 - rows of data
"""Files that are damaged or made to hurt: the right result or one clear sentence, and the parent lives on."""

from __future__ import annotations

import gzip
import json
import os
import signal
import zipfile
from pathlib import Path

import pytest

from data import child
from data.errors import FactoryError
from data.inspect import inspect

ROW = '{"prompt": "a", "completion": "b"}\n'


def refusal(path):
    with pytest.raises(FactoryError) as refused:
        inspect({"path": str(path)})
    assert len(refused.value.findings) == 1 and "\n" not in str(refused.value)
    return refused.value.findings[0]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet_bytes(folder):
    import pyarrow
    import pyarrow.parquet

    file = folder / "whole.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a"] * 3000, "completion": ["b"] * 3000}), file)
    return file.read_bytes()


def test_nesting_twenty_thousand_deep_is_one_bad_row(tmp_path):
    deep = '{"prompt": ' + '{"a":' * 20000 + "1" + "}" * 20001 + "\n"
    report = inspect({"path": str(write(tmp_path / "a.jsonl", deep + ROW))})
    assert report["kept"] == 1 and report["reasons"] == {"too_deep": 1}


@pytest.mark.parametrize(
    "content", ["[" * 20000, "[" * 20000 + "]" * 20000, '[{"a":' + "[" * 20000 + "]" * 20000 + "}]"]
)
def test_a_document_that_is_only_deep_is_refused(tmp_path, content):
    assert refusal(write(tmp_path / "a.json", content)).code == "data_only_broken_rows"


def test_a_line_of_200_megabytes_costs_one_row_and_no_memory(tmp_path):
    file = tmp_path / "a.jsonl"
    with file.open("w") as out:
        out.write(ROW + '{"prompt": "')
        for _ in range(200):
            out.write("x" * 2**20)
        out.write('", "completion": "b"}\n' + ROW)
    report = inspect({"path": str(file)})
    assert report["kept"] == 2 and report["reasons"] == {"line_too_long": 1}


def test_a_gzip_bomb_is_stopped_while_it_grows(tmp_path):
    write(tmp_path / "a.jsonl.gz", gzip.compress(b" " * (200 * 2**20), 1))
    assert refusal(tmp_path / "a.jsonl.gz").code == "data_expands_too_much"


def test_packed_files_are_read_and_torn_ones_are_refused(tmp_path):
    import pyarrow

    noise = "".join(
        json.dumps({"prompt": os.urandom(30).hex(), "completion": "b"}) + "\n" for _ in range(3000)
    )
    packed = {
        "gz": gzip.compress(noise.encode()),
        "zst": pyarrow.compress(noise.encode(), codec="zstd", asbytes=True),
    }
    for ending, content in packed.items():
        assert inspect({"path": str(write(tmp_path / f"a.jsonl.{ending}", content))})["kept"] == 3000
        torn = write(tmp_path / f"torn.jsonl.{ending}", content[: len(content) // 2])
        assert refusal(torn).code == "data_torn_archive"


def test_damaged_parquet_is_refused(tmp_path):
    whole = parquet_bytes(tmp_path)
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF
    for name, content in {
        "half": whole[: len(whole) // 2],
        "flipped": bytes(flipped),
        "footer": whole[:-3] + b"XXX",
    }.items():
        assert refusal(write(tmp_path / f"{name}.parquet", content)).code == "data_damaged"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.jsonl", b"", "data_empty"),
        ("a.jsonl", b"\n \n\n", "data_empty"),
        ("a.pdf", b"%PDF-1.7 x", "data_kind_refused"),
        ("a.jsonl", b"\x80\x04\x95\x00\x00", "data_kind_refused"),
        ("a.csv", ",".join(f"c{n}" for n in range(600)) + "\n" + ",".join("x" * 600) + "\n", "data_too_wide"),
        ("a.csv", "a,b\n1,2\n3,4\n", "data_not_recognised"),
    ],
)
def test_refused_with_a_stable_code(tmp_path, name, content, code):
    assert refusal(write(tmp_path / name, content)).code == code


def test_zip_links_and_pipes_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.jsonl", ROW)
    assert "zip" in refusal(tmp_path / "a.zip").message
    (tmp_path / "link.jsonl").symlink_to("/etc/hostname")
    assert refusal(tmp_path / "link.jsonl").code == "data_is_a_link"
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert refusal(tmp_path / "pipe.jsonl").code == "data_not_a_file"


def test_links_in_a_folder_are_left_out_and_told(tmp_path):
    (tmp_path / "d").mkdir()
    write(tmp_path / "d" / "a.jsonl", ROW)
    (tmp_path / "d" / "b.jsonl").symlink_to("/etc/hostname")
    report = inspect({"path": str(tmp_path / "d")})
    assert report["kept"] == 1 and report["ignored"] == {"b.jsonl": "a link"}


def test_unbalanced_quotes_lose_no_row(tmp_path):
    file = write(tmp_path / "a.csv", "prompt,completion\n" + "a,b\n" * 5000 + 'c,"open\n' + "d,e\n" * 5000)
    report = inspect({"path": str(file)})
    assert report["read"] == report["kept"] == 10001
    told = next(one for one in report["findings"] if one["code"] == "data_unbalanced_quote")
    assert "line 5002" in told["message"]


def test_mixed_types_in_a_column_cost_only_their_rows(tmp_path):
    rows = [{"prompt": "a", "completion": "b"}, {"prompt": 5, "completion": "c"}, {"prompt": {"q": 1}, "completion": "d"},
            {"prompt": None, "completion": "e"}, [1, 2], 7]  # fmt: skip
    report = inspect(
        {"path": str(write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))}
    )
    assert report["kept"] == 2
    assert report["reasons"] == {"wrong_type": 1, "empty_prompt": 1, "not_an_object": 2}
    assert [one["line"] for one in report["examples"]["wrong_type"]] == [3]


def test_what_a_report_shows_cannot_steer_a_terminal(tmp_path):
    evil = '{"prompt": "a", "completion": "\x1b]0;owned\x07" broken\n'
    report = inspect({"path": str(write(tmp_path / "a.jsonl", ROW + evil))})
    assert "\x1b" not in json.dumps(report, ensure_ascii=False)


def test_nul_half_characters_and_marks_are_mended_and_counted(tmp_path):
    text = ROW + '{"prompt": "a\\u0000b", "completion": "c"}\n{"prompt": "\\ud83d x", "completion": "d"}\n'
    text += '{"prompt": "\ufeffq", "completion": "\ufffd"}\n'
    report = inspect({"path": str(write(tmp_path / "a.jsonl", text))})
    codes = {one["code"] for one in report["findings"]}
    assert report["kept"] == 4 and {"data_nul", "data_surrogate", "data_bom", "data_replacement"} <= codes


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV])
def test_a_parser_that_crashes_leaves_the_parent_alive(tmp_path, monkeypatch, sent):
    file = write(tmp_path / "a.jsonl", ROW)
    real = child.subprocess.Popen

    def doomed(command, **settings):
        return real([command[0], "-c", f"import os; os.kill(os.getpid(), {int(sent)})"], **settings)

    monkeypatch.setattr(child.subprocess, "Popen", doomed)
    finding = refusal(file)
    assert (
        finding.code == "data_parser_crashed"
        and sent.name in finding.message
        and "a.jsonl" in finding.message
    )


def test_the_child_is_limited(tmp_path):
    """Memory, CPU time and writing: each limit is met by a process that tries to pass it."""
    import subprocess
    import sys

    env = {**os.environ, "PYTHONPATH": str(child.ROOT)}
    tries = {
        "bytearray(6 * 2**30)": "MemoryError",
        "open('x', 'wb', 0).write(b'x')": "File too large",
    }
    for attempt, outcome in tries.items():
        code = f"from data.child import limit_process; limit_process(5); {attempt}"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env
        )
        assert done.returncode != 0 and outcome in done.stderr, done.stderr
    spin = "from data.child import limit_process; limit_process(1)\nwhile True: pass"
    assert subprocess.run([sys.executable, "-c", spin], cwd=tmp_path, env=env).returncode == -signal.SIGXCPU


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% if true %}" * 50_000 + "{% endif %}" * 50_000,
        "{{ ''.__class__.__mro__ }}{{ messages }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**10 }}",
    ],
    ids=["long_loop", "deep", "escape", "nested_loops", "huge"],
)
def test_templates_made_to_hurt_are_refused(tmp_path, template):
    from tests.tiny import tiny_tokenizer
    from tests.unit.data.helpers import prepared

    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    file = write(tmp_path / "a.jsonl", json.dumps(chat) + "\n")
    with pytest.raises(FactoryError) as refused:
        prepared(file, tiny_tokenizer(template), tmp_path / "cache")
    assert refused.value.findings[0].code in (
        "template_broken", "template_too_long", "template_too_slow", "data_no_rows_left", "data_masks_unclear",
        "data_needs_too_much_memory",
    )  # fmt: skip


@pytest.mark.parametrize("content", [os.urandom(3000), b"\x7fELF" + bytes(range(256)) * 20])
def test_a_binary_file_is_no_text_in_a_strange_encoding(tmp_path, content):
    assert refusal(write(tmp_path / "a.bin", content)).code == "data_kind_refused"


@pytest.mark.parametrize("kind", ["utf-8", "utf-16", "utf-16-le", "cp1252", "gb18030"])
def test_a_text_is_no_binary_file(tmp_path, kind):
    text = "".join(f'{{"prompt": "Größe {n}", "completion": "{n}\\u0000"}}\n' for n in range(50))
    words = text.replace("Größe", "中文问题") if kind == "gb18030" else text
    assert inspect({"path": str(write(tmp_path / "a.jsonl", words.encode(kind)))})["kept"] == 50


@pytest.mark.parametrize(("name", "code"), [("klingon", "unknown_encoding"), ("base64", "unknown_encoding"),
                                            ("utf-16", "wrong_encoding")])  # fmt: skip
def test_a_wrong_encoding_is_not_blamed_on_the_file(tmp_path, name, code):
    file = write(tmp_path / "a.jsonl", ROW)
    with pytest.raises(FactoryError) as refused:
        inspect({"path": str(file), "encoding": name})
    assert (refused.value.findings[0].code, refused.value.findings[0].field) == (code, "data.encoding")


def test_a_word_that_no_format_knows_is_told(tmp_path):
    file = write(tmp_path / "a.jsonl", ROW)
    with pytest.raises(FactoryError, match="did you mean completion"):
        inspect({"path": str(file), "columns": {"completoin": "completion"}})


def test_words_for_columns_are_what_formats_look_for():
    import re

    from data import formats
    from data.formats.base import WORDS

    sources = "".join(path.read_text() for path in Path(formats.__file__).parent.glob("*.py"))
    asked = set(re.findall(r'columns\.(?:find|text)\(\s*"([a-z_]+)"', sources))
    assert asked <= WORDS and len(asked) > 30


def test_an_exception_in_the_parser_is_our_fault_and_says_so(tmp_path, monkeypatch):
    file = write(tmp_path / "a.jsonl", ROW)
    real = child.subprocess.Popen

    def failing(command, **settings):
        return real([command[0], "-c", "raise ZeroDivisionError('division by zero')"], **settings)

    monkeypatch.setattr(child.subprocess, "Popen", failing)
    finding = refusal(file)
    assert finding.code == "data_parser_failed" and "ZeroDivisionError: division by zero" in finding.message
    assert "damaged" not in finding.message
