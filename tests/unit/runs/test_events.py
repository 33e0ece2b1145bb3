"""Events and journal: one write a line, offsets as the order, any damage survived."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs import events
from core.runs.journal import Journal, read_lines, read_records


def _write(path: Path, *some: events.Event) -> None:
    with events.EventWriter(path) as writer:
        for event in some:
            writer.emit(event)


def test_events_come_back_typed_in_order_and_with_the_offset_to_go_on_from(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sample = events.Sample(step=2, prompt="Wer?", answer="Ich — 🦊", kind="before")
    _write(path, events.Ready(pid=7), events.Metric(step=1, epoch=0.5, values={"loss": 2.5}), sample)
    found, end = events.read_events(path)
    assert [type(event) for event in found] == [events.Ready, events.Metric, events.Sample]
    assert found[2].answer == "Ich — 🦊" and found[2].kind == "before"
    assert end == path.stat().st_size == found[-1].end
    assert events.read_events(path, found[0].end)[0] == found[1:]
    assert found[0].mono <= found[1].mono <= found[2].mono


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    assert events.read_events(tmp_path / "none.jsonl") == ([], 0)


def test_values_that_are_no_number_are_set_aside_by_name(tmp_path: Path) -> None:
    metric = events.Metric(step=1, values={"loss": math.nan, "grad_norm": math.inf, "lr": 0.1})
    assert metric.values == {"lr": 0.1} and metric.not_finite == ["loss", "grad_norm"]
    path = tmp_path / "e"
    _write(path, metric)
    assert events.read_events(path)[0][0].not_finite == ["loss", "grad_norm"]


def test_a_torn_last_line_is_waited_for_and_then_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "e"
    _write(path, events.Ready())
    with path.open("ab") as file:
        file.write(b'{"event": "metric", "st')
    found, end = events.read_events(path)
    assert len(found) == 1 and end == found[0].end
    _write(path, events.Metric(step=2))
    late, _ = events.read_events(path, end)
    assert [event.event for event in late] == ["warning", "metric"]
    assert late[0].code == "unreadable_event"


def test_kinds_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text('{"event":"hologram","x":1}\n{"event":"ready","new_key":1}\n', encoding="utf-8")
    assert [event.event for event in events.read_events(path)[0]] == ["ready"]


def test_a_file_replaced_by_a_shorter_one_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "e"
    _write(path, events.Ready())
    assert len(events.read_events(path, 10_000)[0]) == 1


def test_four_writers_break_no_line(tmp_path: Path) -> None:
    path = tmp_path / "e"
    code = (
        "import sys; from pathlib import Path; from core.runs.journal import Journal\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for i in range(200): j.append({'event': 'metric', 'step': i, 'who': sys.argv[2], 'pad': 'x' * 9999})"
    )
    writers = [subprocess.Popen([sys.executable, "-S", "-c", code, str(path), str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    records, _ = read_records(path)
    assert len(records) == 800
    for n in range(4):
        assert [record["step"] for record in records if record["who"] == str(n)] == list(range(200))


def test_a_full_disk_costs_metrics_but_says_how_many_and_never_a_state(tmp_path: Path) -> None:
    path = tmp_path / "e"
    journal = Journal(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal.append({"event": "ready"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.size() + 20, hard))
    try:
        assert journal.append({"event": "metric", "step": 1}) is False
        assert journal.append({"event": "metric", "step": 2}) is False
        with pytest.raises(OSError, match="too large"):
            journal.append({"event": "state", "state": "failed"}, must=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.append({"event": "metric", "step": 3}) is True
    journal.close()
    found = events.read_events(path)[0]
    assert [event.event for event in found if getattr(event, "code", "") != "unreadable_event"] == [
        "ready",
        "warning",
        "metric",
    ]
    assert any("2 events are missing" in getattr(event, "message", "") for event in found)


def test_follow_gives_everything_up_to_the_end_and_none_while_waiting(tmp_path: Path) -> None:
    path = tmp_path / "e"
    _write(path, events.Ready())
    calls = iter([False, False, True])

    def ended() -> bool:
        over = next(calls)
        if over:
            _write(path, events.Done(model="model"))
        return over

    kinds = [event and event.event for event in events.follow(path, 0, ended, pause=0.01)]
    assert kinds == ["ready", None, None, "done"]


@given(st.lists(st.binary(max_size=40)), st.integers(0, 400))
def test_any_bytes_and_any_cut_give_events_and_an_offset_that_never_goes_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cut: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "e"
    good = json.dumps({"event": "ready", "t": 1.0, "mono": 1.0}).encode()
    whole = b"\n".join([good, *lines, good]) + b"\n"
    path.write_bytes(whole[:cut] if cut < len(whole) else whole)
    offset, seen = 0, 0
    while True:
        found, reached = events.read_events(path, offset)
        assert reached >= offset and all(offset < event.end <= reached for event in found)
        seen += sum(event.event == "ready" for event in found)
        if reached == offset:
            break
        offset = reached
    if cut >= len(whole):
        assert seen >= 2


def test_damage_of_many_megabytes_without_a_newline_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 40 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"event":"ready"}\n')
    offset, kinds = 0, set()
    while True:
        found, reached = events.read_events(path, offset)
        kinds |= {event.event for event in found}
        if reached == offset:
            break
        offset = reached
    assert kinds == {"warning", "ready"}


def test_read_lines_gives_about_as_much_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_bytes(b'{"event":"ready"}\n' * 200_000)
    lines, end = read_lines(path, 0, most=1 << 20)
    assert 1 << 20 <= end < 3 << 20
    assert lines[-1].end == end
