"""Live streams: what is written arrives once, in order, and a reader goes on where it was, server restart or not."""

from __future__ import annotations

import time
from typing import Any

from tests.unit.webui.conftest import Board, make_run, messages, metric


def take(
    board: Board, path: str, count: int, kinds: tuple[str, ...], last: str | None = None, do: Any = None
) -> list[Any]:
    """The first messages of these kinds; `do` is called once the stream is open."""
    headers = {"last-event-id": last} if last else {}
    found: list[Any] = []
    with board.client.stream("GET", path, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        for message in messages(answer.iter_lines()):
            if do is not None:
                do()
                do = None
            if message[0] in kinds:
                found.append(message)
                if len(found) == count:
                    return found
    return found


def test_events_from_a_byte_on_come_at_once_and_new_ones_follow(board, home):
    run, journal = make_run(home)
    metric(journal, 1, loss=1.0)
    found = take(
        board, f"/api/runs/{run.id}/stream?after=0", 2, ("events",), do=lambda: metric(journal, 2, loss=0.5)
    )
    events = [event for _, _, data in found for event in data["events"]]
    assert [event.get("step") for event in events] == [None, 1, 2]
    assert found[-1][1] == f"{run.id}:{run.events.stat().st_size}:0"


def test_without_a_byte_only_new_events_and_lines_come(board, home):
    run, journal = make_run(home)
    run.log.write_text("old\n")
    found = take(
        board, f"/api/runs/{run.id}/stream", 1, ("log",), do=lambda: run.log.write_text("old\nnew\n")
    )
    assert (found[0][2]["lines"], found[0][2]["from"]) == (["new"], 4)


def test_a_stream_says_the_state_and_the_load_of_the_machine(board, home):
    run, _ = make_run(home, "succeeded")
    (state,) = take(board, f"/api/runs/{run.id}/stream", 1, ("state",))
    assert state[2]["row"]["state"] == "succeeded"
    (machine,) = take(board, f"/api/runs/{run.id}/stream", 1, ("machine",))
    assert machine[2]["memory_used"] > 0


def test_a_stream_goes_on_after_a_restart_without_losing_or_repeating(start, home):
    run, journal = make_run(home)
    first = start()
    metric(journal, 1, loss=1.0)
    run.log.write_text("one\n")
    seen = take(first, f"/api/runs/{run.id}/stream?after=0&log=0", 2, ("events", "log"))
    first.close()
    metric(journal, 2, loss=1.0)
    with run.log.open("a") as file:
        file.write("two\n")
    second = start()
    found = take(second, f"/api/runs/{run.id}/stream?after=0", 2, ("events", "log"), last=seen[-1][1])
    by_kind = {kind: data for kind, _, data in found}
    assert [event["step"] for event in by_kind["events"]["events"]] == [2]
    assert by_kind["log"]["lines"] == ["two"]


def test_a_cursor_beyond_the_end_is_the_end(board, home):
    run, journal = make_run(home)
    found = take(
        board,
        f"/api/runs/{run.id}/stream",
        1,
        ("events",),
        last=f"{run.id}:999999999999:5",
        do=lambda: metric(journal, 1, loss=1.0),
    )
    assert [event["step"] for event in found[0][2]["events"]] == [1]


def test_a_broken_cursor_is_no_cursor(board, home):
    run, journal = make_run(home)
    for last in ("nonsense", f"{run.id}:x", "../..:1:2", "🙂"[:0] + ","):
        assert take(board, f"/api/runs/{run.id}/stream", 1, ("state",), last=last)


def test_one_stream_carries_several_runs_each_from_its_own_byte(board, home):
    one, first = make_run(home)
    other, second = make_run(home)
    metric(first, 1, loss=1.0)
    metric(second, 2, loss=1.0)
    found = take(board, f"/api/stream?ids={one.id}:0,{other.id}:0:0", 2, ("events",))
    assert {data["run"] for _, _, data in found} == {one.id, other.id}
    assert {part.partition(":")[0] for part in found[-1][1].split(",")} == {one.id, other.id}


def test_of_several_runs_one_that_was_deleted_before_is_told_as_gone(board, home):
    run, _ = make_run(home)
    other, _ = make_run(home)
    board.client.delete(f"/api/runs/{other.id}")
    found = take(board, f"/api/stream?ids={run.id}:0:0,{other.id}:0:0", 2, ("gone", "events"))
    assert found[0][2] == {"run": other.id} and found[1][2]["run"] == run.id


def test_the_list_streams_rows_that_change_and_ids_that_go(board, home):
    run, _ = make_run(home)
    other, _ = make_run(home)

    def delete() -> None:
        board.client.delete(f"/api/runs/{other.id}")

    found = take(board, "/api/stream", 2, ("runs",), do=delete)
    assert {row["id"] for row in found[0][2]["runs"]} == {run.id, other.id}
    assert found[1][2] == {"runs": [], "gone": [other.id]}


def test_a_flood_of_lines_is_cut_and_says_from_where_it_goes_on(board, home):
    run, _ = make_run(home)
    run.log.write_text("")

    def flood() -> None:
        text = "".join(f"line {number}\n" for number in range(100_000))
        (run.path / "flood").write_text(text)
        (run.path / "flood").rename(run.log)

    (found,) = take(board, f"/api/runs/{run.id}/stream?log=0", 1, ("log",), do=flood)
    page = found[2]
    assert page["from"] > 0 and page["to"] == run.log.stat().st_size and page["lines"][-1] == "line 99999"
    assert page["lines"][0].startswith("line ")


def test_a_deleted_run_is_gone_from_its_stream(board, home):
    run, _ = make_run(home)
    (gone,) = take(
        board,
        f"/api/runs/{run.id}/stream",
        1,
        ("gone",),
        do=lambda: board.client.delete(f"/api/runs/{run.id}"),
    )
    assert gone[2] == {"run": run.id}


def test_open_streams_do_not_hold_up_the_end_of_the_server(board, home):
    run, _ = make_run(home)
    with board.client.stream("GET", f"/api/runs/{run.id}/stream") as answer:
        lines = answer.iter_lines()
        next(lines)
        board.hub.closing = True
        board.server.should_exit = True
        for _ in lines:  # to its own end: a stream that the server cuts off raises here
            pass


def test_nobody_listening_means_nobody_reading(board, home):
    run, _ = make_run(home)
    take(board, f"/api/runs/{run.id}/stream", 1, ("state",))
    deadline = time.monotonic() + 120
    while (board.hub.tails or board.hub.listeners) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (board.hub.tails, board.hub.listeners) == ({}, 0)
