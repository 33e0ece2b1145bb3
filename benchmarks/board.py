"""What the board costs: `python -m benchmarks.board [--clients 50] [--lines 100000] [--seconds 20] [--soak 0]`.

A real board, a process that writes a run's log and events, and clients that follow it, all on this machine and this
machine only. Numbers are printed, not asserted; the targets of issue 7 stand beside them. With --soak MINUTES ten
clients stay that long, and the server's memory is told each minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from core.runs.folder import Run, create_run
from core.runs.journal import Journal
from core.runs.storage import write_json

LINE = b"step 000123  loss 1.2345  a line of some eighty characters, as trainers print them all day\n"
WATCHED = 4
"""Clients whose messages are read for the time they took."""
JOB: dict[str, Any] = {
    "name": "load",
    "model": {"name": "x"},
    "data": {"path": "x"},
    "stage": {"name": "sft"},
}


def main() -> None:
    """Measure and print a table."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--clients", type=int, action="append", help="followers; may be repeated (50 and 200)")
    words.add_argument("--lines", type=int, default=100_000, help="log lines a second")
    words.add_argument("--seconds", type=float, default=20.0, help="how long each load lasts")
    words.add_argument("--soak", type=float, default=0.0, help="minutes with ten clients, for the memory")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-board-") as folder:
        board = Board(Path(folder))
        try:
            _print("CPU-seconds to the first page", f"{board.cpu_to_page:.2f}", "under 5")
            _print(
                "wall seconds to the first page", f"{board.wall_to_page:.1f} (load {os.getloadavg()[0]:.1f})"
            )
            _print("memory after the first page", _mib(board.memory()))
            for clients in asked.clients or [50, 200]:
                board.load(clients, asked.lines, asked.seconds)
            if asked.soak:
                board.soak(asked.soak)
        finally:
            board.close()


class Board:
    """`factory board` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        environment = {
            **os.environ,
            "FACTORY_HOME": str(self.home),
            "FACTORY_SLOTS": str(folder / "slots"),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "core.cli", "board", "--port", "0", "--no-token"]
        began = time.monotonic()
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().split()[-1]
        self.port = int(address.rstrip("/").rpartition(":")[2])
        status, _ = asyncio.run(_get(self.port, "/"))
        assert status == 200
        self.wall_to_page = time.monotonic() - began
        self.watched = psutil.Process(self.process.pid)
        used = self.watched.cpu_times()
        self.cpu_to_page = used.user + used.system + used.children_user + used.children_system

    def memory(self) -> int:
        """Bytes that are the server's own."""
        return int(self.watched.memory_full_info().uss)

    def load(self, clients: int, lines: int, seconds: float) -> None:
        """So many clients follow one run that writes so many lines a second."""
        run = _run(self.home)
        writer = multiprocessing.Process(target=_write, args=(run.path, lines, seconds + 3), daemon=True)
        before, used, began = self.memory(), self.watched.cpu_times(), time.monotonic()
        writer.start()
        told = asyncio.run(_follow(self.port, run.id, clients, seconds))
        now, passed = self.watched.cpu_times(), time.monotonic() - began
        writer.terminate()
        writer.join()
        title = f"{clients} clients, {lines:,} lines/s"
        _print(f"{title}: lines written", f"{run.log.stat().st_size // len(LINE) / passed:,.0f} a second")
        rest = sorted(told["rest"])
        target = "300 ms" if clients <= 50 else "1 s"
        _print(
            f"{title}: REST p50 / p99",
            f"{_at(rest, 0.5)} / {_at(rest, 0.99)} of {len(rest)}",
            f"p99 under {target}",
        )
        late = sorted(told["late"])
        _print(
            f"{title}: event to client p50 / p95",
            f"{_at(late, 0.5)} / {_at(late, 0.95)} of {len(late)}",
            "p95 under 200 ms" if clients <= 50 else "",
        )
        cpu = (now.user + now.system - used.user - used.system) / passed
        _print(
            f"{title}: server",
            f"{cpu:.0%} of a core, memory {_mib(before)} -> {_mib(self.memory())}",
            "+50 MiB at most",
        )
        _print(
            f"{title}: sent, load average",
            f"{told['bytes'] / passed / 2**20:.1f} MiB/s, {os.getloadavg()[0]:.1f}",
        )
        run.log.unlink()

    def soak(self, minutes: float) -> None:
        """Ten clients come, follow for a quarter of a minute, and go, for so many minutes."""
        run = _run(self.home)
        writer = multiprocessing.Process(target=_write, args=(run.path, 1000, minutes * 60 + 5), daemon=True)
        writer.start()
        began = time.monotonic()
        while time.monotonic() - began < minutes * 60:
            asyncio.run(_follow(self.port, run.id, 10, 15.0))
            _print(f"soak, minute {(time.monotonic() - began) / 60:.1f}", _mib(self.memory()), "no growth")
        writer.terminate()
        writer.join()

    def close(self) -> None:
        """End it, and tell how long that took with streams open before."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        _print("SIGTERM to the end", f"{time.monotonic() - began:.1f} s", "3 s")


def _run(home: Path) -> Run:
    run = create_run(home, "stage: sft\n", JOB, {"argv": ["true"], "environment": [], "steps": 1000})
    record = {
        "version": 1,
        "id": run.id,
        "stage": "sft",
        "state": "stopped",
        "attempt": 1,
        "created": time.time(),
    }
    write_json(run.state_json, record)
    run.log.touch()
    run.events.touch()
    return run


def _write(folder: Path, lines: int, seconds: float) -> None:
    """A hundred writes a second to the log, four metrics a second to the events."""
    run, journal, began, step = Run(folder), Journal(folder / "events.jsonl"), time.monotonic(), 0
    block = LINE * max(1, lines // 100)
    with run.log.open("ab", buffering=0) as log:
        for number in range(int(seconds * 100)):
            log.write(block)
            if number % 25 == 0:
                step += 1
                journal.append(
                    {"event": "metric", "step": step, "values": {"loss": 1.0, "sent": time.time()}}
                )
            time.sleep(max(0.0, began + (number + 1) / 100 - time.monotonic()))


async def _follow(port: int, id: str, clients: int, seconds: float) -> dict[str, Any]:
    """What it costs a few clients and a script when `clients` others listen, who are processes of their own."""
    told: dict[str, Any] = {"rest": [], "late": [], "bytes": 0}
    until = time.monotonic() + seconds
    others = multiprocessing.Value("q", 0)
    crowd = [
        multiprocessing.Process(target=_crowd, args=(port, id, share, seconds, others), daemon=True)
        for share in (clients // 2, clients - clients // 2 - WATCHED)
    ]
    for process in crowd:
        process.start()
    followers = [asyncio.create_task(_listen(port, id, until, told)) for _ in range(WATCHED)]
    await asyncio.sleep(2.0)
    paths = [
        f"/api/runs/{id}",
        "/api/runs",
        f"/api/runs/{id}/log?tail=200",
        f"/api/runs/{id}/metrics",
        "/api/data",
    ]
    turn = 0
    while time.monotonic() < until:
        began = time.monotonic()
        status, _ = await _get(port, paths[turn % len(paths)])
        assert status == 200
        told["rest"].append(time.monotonic() - began)
        turn += 1
        await asyncio.sleep(0.05)
    await asyncio.gather(*followers)
    for process in crowd:
        process.join()
    told["bytes"] += others.value
    return told


def _crowd(port: int, id: str, clients: int, seconds: float, total: Any) -> None:
    """So many clients in one process, which read and do nothing else."""

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(clients)))

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(f"GET /api/runs/{id}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        until, count = time.monotonic() + seconds, 0
        while (left := until - time.monotonic()) > 0:
            try:
                count += len(await asyncio.wait_for(reader.read(1 << 18), left))
            except TimeoutError:
                break
        writer.close()
        with total.get_lock():
            total.value += count

    asyncio.run(all_of_them())


async def _listen(port: int, id: str, until: float, told: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(f"GET /api/runs/{id}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    while (left := until - time.monotonic()) > 0:
        try:
            line = await asyncio.wait_for(reader.readline(), left)
        except TimeoutError:
            break
        told["bytes"] += len(line)
        if line.startswith(b'data: {"run"') and b'"sent"' in line[:400]:
            now = time.time()
            events = json.loads(line[6:])["events"]
            told["late"].extend(now - one["values"]["sent"] for one in events if one["event"] == "metric")
    writer.close()


async def _get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


def _at(values: list[float], share: float) -> str:
    return f"{values[min(len(values) - 1, int(len(values) * share))] * 1000:.0f} ms" if values else "none"


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


def _print(what: str, value: str, target: str = "") -> None:
    print(f"{what:<52} {value:<42} {target}", flush=True)


if __name__ == "__main__":
    main()
