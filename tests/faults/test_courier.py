"""Events of a training on another machine reach the run's own once each, in order, whoever is killed in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.runs.courier import Courier, events_file, name_for, reached
from core.runs.events import EventWriter, Metric, Phase, read_events
from core.runs.folder import Run
from core.runs.journal import read_records
from tests.faults.copier import GROUP

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
SOURCES = (f"{GROUP}-0", f"{GROUP}-1")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def there(run: Run, source: str = SOURCES[0]) -> Path:
    """The events file of another machine."""
    return run.path / name_for(source)


def steps(run: Run, source: str = SOURCES[0]) -> list[int]:
    """The steps in the run's own events that came from a source."""
    records, _ = read_records(run.events)
    return [record["step"] for record in records if (record.get("carried") or [""])[0] == source]


def line(step: int, **more: Any) -> bytes:
    return json.dumps({"event": "metric", "step": step, "values": {}, "t": 1.0, **more}).encode() + b"\n"


def process(run: Run, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-m", "tests.faults.copier", str(run.path), *words])


def test_copiers_that_are_killed_again_and_again_double_nothing_and_lose_nothing(run):
    count = 1500
    writers = [process(run, source, str(count)) for source in SOURCES]
    own = EventWriter(run.events)  # the supervisor, on this machine
    kills = 0
    while any(writer.poll() is None for writer in writers) or kills < 8:
        copier, before = process(run), sum(reached(run).values())
        deadline = time.monotonic() + 30
        while sum(reached(run).values()) == before and time.monotonic() < deadline:
            own.emit(Phase(name="waiting"))  # each copier gets to copy something, if there is something left
            if all(writer.poll() is not None for writer in writers):
                break
        copier.send_signal(signal.SIGKILL)
        copier.wait()
        kills += 1
    assert [writer.wait() for writer in writers] == [0, 0]
    (run.path / "over").touch()
    assert process(run).wait(60) == 0
    for source in SOURCES:
        assert steps(run, source) == list(range(count))
    assert kills >= 8


def test_two_copiers_at_once_are_one(run):
    writer = process(run, SOURCES[0], "300")
    copiers = [process(run) for _ in range(3)]
    assert writer.wait(60) == 0
    (run.path / "over").touch()
    assert [copier.wait(60) for copier in copiers] == [0, 0, 0]
    assert steps(run) == list(range(300))


def test_half_a_line_waits_for_its_other_half(run):
    there(run).write_bytes(line(1) + line(2)[:20])
    courier = Courier(run, GROUP)
    assert (courier.carry(), steps(run)) == (1, [1])
    with there(run).open("ab") as file:
        file.write(line(2)[20:])
    assert (courier.carry(last=True), steps(run)) == (1, [1, 2])


def test_a_line_that_was_torn_for_good_is_told_once_and_spoils_no_other(run):
    there(run).write_bytes(line(1) + b'{"event": "metr\n' + line(3))
    for _ in range(2):
        courier = Courier(run, GROUP)
        courier.carry(last=True)
        courier.close()
    events, _ = read_events(run.events)
    assert [event.event for event in events] == ["metric", "warning", "metric"]
    assert events[1].code == "unreadable_event" and there(run).name in events[1].message


def test_a_copy_that_was_torn_is_made_again(run):
    there(run).write_bytes(line(1) + line(2))
    first = Courier(run, GROUP)
    first.carry()
    first.close()
    run.events.write_bytes(run.events.read_bytes()[:-7])  # killed in the middle of its write
    assert (Courier(run, GROUP).carry(), steps(run)) == (1, [1, 2])


def test_a_piece_that_has_not_arrived_yet_holds_up_what_comes_behind_it(run):
    there(run).write_bytes(line(1) + b"\0" * len(line(2)) + line(3))
    courier = Courier(run, GROUP)
    assert (courier.carry(), steps(run)) == (1, [1])
    there(run).write_bytes(line(1) + line(2) + line(3))
    assert (courier.carry(), steps(run)) == (2, [1, 2, 3])


def test_events_of_two_machines_come_in_the_order_of_their_times(run):
    there(run).write_bytes(line(1, t=1.0) + line(3, t=3.0))
    there(run, SOURCES[1]).write_bytes(line(2, t=2.0))
    Courier(run, GROUP).carry()
    assert [event.step for event in read_events(run.events)[0]] == [1, 2, 3]


def test_a_clock_that_was_set_back_changes_no_order(run):
    there(run).write_bytes(line(1, t=9.0) + line(2, t=3.0) + line(3, t=4.0))
    there(run, SOURCES[1]).write_bytes(line(4, t=5.0))
    Courier(run, GROUP).carry()
    assert [event.step for event in read_events(run.events)[0]] == [4, 1, 2, 3]


def test_a_disk_that_is_full_for_a_while_costs_no_event(run):
    text = b"".join(line(step) for step in range(200))
    there(run).write_bytes(text)
    limited = f"""
import json, pathlib, resource
from core.runs.courier import Courier
from core.runs.folder import Run
courier = Courier(Run(pathlib.Path({str(run.path)!r})), {GROUP!r})
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(text) // 2}, resource.RLIM_INFINITY))
copied = [courier.carry()]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([*copied, courier.carry()]))
"""
    told = subprocess.run([sys.executable, "-S", "-c", limited], capture_output=True, check=True).stdout
    first, second = json.loads(told)
    assert first == 0 < second < 200
    assert steps(run) == list(range(200))


def test_a_training_writes_where_it_is_told_and_never_out_of_its_run(run, monkeypatch):
    assert events_file(run) == run.events
    monkeypatch.setenv("FACTORY_EVENTS", f"/etc/{there(run).name}")
    assert events_file(run) == there(run)
    EventWriter(events_file(run)).emit(Metric(step=1))
    Courier(run, GROUP).carry()
    assert steps(run) == [1] and not events_file(run).samefile(run.events)
