"""What was found out about a file is found out once, and again when the file has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.job.remembered import NEWEST, remembered


class Asked:
    """Counts how often it had to find out."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[int]:
        self.times += 1
        return [self.times]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to ask about."""
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    return path


def test_the_same_question_about_the_same_file_is_asked_once(tmp_path: Path, file: Path) -> None:
    ask = Asked()
    assert [remembered(tmp_path, "q", [file], ask) for _ in range(3)] == [[1]] * 3
    assert remembered(tmp_path, "another", [file], ask) == [2]


def test_a_changed_or_replaced_file_is_asked_about_again(tmp_path: Path, file: Path) -> None:
    ask = Asked()
    remembered(tmp_path, "q", [file], ask)
    file.write_text("[]\n", encoding="utf-8")
    assert remembered(tmp_path, "q", [file], ask) == [2]
    file.unlink()
    file.write_text("[]\n", encoding="utf-8")
    assert remembered(tmp_path, "q", [file], ask) == [3]


def test_what_fails_is_not_remembered_and_a_file_that_is_gone_is_an_error(tmp_path: Path, file: Path) -> None:
    def fail() -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            remembered(tmp_path, "q", [file], fail)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        remembered(tmp_path, "q", [file], Asked())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_damaged_memory_only_costs_the_time_to_ask_again(
    tmp_path: Path, file: Path, content: bytes
) -> None:
    ask = Asked()
    remembered(tmp_path, "q", [file], ask)
    (memory,) = (tmp_path / "cache" / "remembered").iterdir()
    memory.write_bytes(content)
    assert remembered(tmp_path, "q", [file], ask) == [2]


def test_a_home_that_is_not_there_is_not_made_and_the_process_remembers_the_newest(
    tmp_path: Path, file: Path
) -> None:
    ask, home = Asked(), tmp_path / "new"
    assert [remembered(home, "q", [file], ask) for _ in range(2)] == [[1], [1]]
    for number in range(NEWEST):
        remembered(home, number, [file], ask)
    assert remembered(home, "q", [file], ask) == [NEWEST + 2] and not home.exists()


def test_an_answer_is_not_kept_across_an_update_of_the_code(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Asked()
    remembered(tmp_path, "q", [file], ask)
    monkeypatch.setattr("core.job.remembered._code", lambda: [[1, 2]])
    assert remembered(tmp_path, "q", [file], ask) == [2]
