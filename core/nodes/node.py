"""A node of a run that is not its first: joins node 0, does its part, ends with it: `factory node RUN --rank 1`.

It takes devices in the queue of its own machine, keeps its output in the run folder, and ends what it started when the
run ends, when node 0 says so, or when node 0 is lost.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.nodes.link import Link, Lost, split_endpoint, wait_for
from core.nodes.meeting import FOLDER, passport, read_note
from core.nodes.place import network
from core.nodes.rendezvous import command_of_node
from core.runs import process
from core.runs.folder import Run
from core.runs.locks import open_lock
from core.runs.queue import Grant, Queue, new_key, wish_for
from core.runs.states import ENDS
from core.runs.storage import last_line, read_json
from data.errors import refuse

CHECKOUT = Path(__file__).resolve().parents[2]
STOPPED = 3
"""Exit code of a training that saved and stopped when asked."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL when node 0 is lost: there is nobody left to save with."""
Say = Callable[[str], None]


def join(run: Run, rank: int, say: Say) -> int:
    """Train as node `rank` of the run, to its end; the exit code of this node's training.

    Raises FactoryError when the run has no place for this node or node 0 does not answer in time.
    """
    job = read_json(run.job_json)
    settings = job.get("launcher") or {}
    if settings.get("name") != "torchrun":
        text = f"Run {run.id} is not of launcher torchrun; its nodes are started by launcher {settings.get('name')}."
        raise refuse("run_without_nodes", text, value=run.id)
    nodes = int((job.get("hardware") or {}).get("nodes") or 1)
    if not 1 <= rank < nodes:
        text = f"--rank {rank} is no other node of run {run.id}: it has ranks 1 to {nodes - 1}, and node 0 is its own."
        raise refuse("rank_out_of_range", text, value=rank)
    return _Node(run, rank, job, say).main(float(settings.get("timeout") or 300))


class _Node:
    def __init__(self, run: Run, rank: int, job: dict[str, Any], say: Say) -> None:
        self.run, self.rank, self.job, self.say = run, rank, job, say
        self.asked = False

    def main(self, timeout: float) -> int:
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        deadline = time.monotonic() + timeout
        grant = self.take_devices(deadline)
        try:
            link = self.connect(deadline)
            self.say(f"Node {self.rank} of run {self.run.id}: waiting for the others")
            try:
                return self.train(link, self.wait_for_word(link), list(grant.slots))
            finally:
                link.close()
        finally:
            for descriptor in grant.slots.values():
                os.close(descriptor)

    def take_devices(self, deadline: float) -> Grant:
        """This machine's devices for this run, as every run takes them: in its queue."""
        queue, key = Queue(), new_key()
        held: list[int] = []

        def own(ticket: int) -> int:
            held.append(os.dup(ticket))
            return os.getpid()

        queue.enter(wish_for((self.job.get("hardware") or {}).get("devices")), self.run.path, key, own)
        try:
            while not isinstance(answer := queue.try_take(key, self.run.path), Grant):
                if time.monotonic() > deadline or self.asked:
                    busy = ", ".join(str(one.get("run", "")).rpartition("/")[2] for one in answer.holders)
                    text = f"This machine's devices are in use by {busy or 'another run'}: end it, or wait for it."
                    raise refuse("node_busy", text, value=self.run.id)
                time.sleep(0.5)
            return answer
        finally:
            queue.leave(key)
            for descriptor in held:
                os.close(descriptor)

    def connect(self, deadline: float) -> Link:
        """A line to node 0, which may not be there yet."""
        problem = "it has not said where it is: is its run folder on a file system that both see, and is it running?"
        while time.monotonic() < deadline and not self.asked:
            refuse_ended(self.run)
            note = read_note(self.run)
            if note is not None:
                address, port = split_endpoint(note["endpoint"])
                try:
                    link = Link(socket.create_connection((address, port), timeout=5.0))
                except OSError as error:
                    problem = f"{note['endpoint']}: {error.strerror or error}"
                else:
                    link.send(**passport(self.run, note["key"], self.rank))
                    return link
            time.sleep(0.5)
        text = f"Node 0 of run {self.run.id} cannot be reached ({problem})."
        raise refuse("node_without_head", text, value=self.run.id)

    def wait_for_word(self, link: Link) -> dict[str, Any]:
        """Node 0's word to begin. Raises FactoryError when it refuses this node or goes away."""
        while not self.asked:
            try:
                for word in link.receive():
                    if "refused" in word:
                        raise refuse(
                            "node_refused", f"Node 0 refused this node: {word['refused']}.", value=self.rank
                        )
                    if "go" in word:
                        return word
            except Lost as lost:
                raise refuse("node_lost", f"Node 0 is gone: {lost}.", value=self.rank) from lost
            wait_for([link], 0.5)
        raise refuse("node_stopped", "This node was told to stop before the run began.", value=self.rank)

    def train(self, link: Link, word: dict[str, Any], slots: list[str]) -> int:
        """Run this node's part until it ends, or until it has to."""
        plan = read_json(self.run.plan_json)
        env = process.environment(os.environ, plan.get("environment", []), slots, self.run.home)
        env["FACTORY_NODE"] = str(self.rank)
        env |= network((self.job["launcher"]).get("interface"), link.own_address, env)
        argv = command_of_node(
            plan["training"],
            self.rank,
            int(word["nodes"]),
            word["go"],
            key=word["id"],
            timeout=int(word["timeout"]),
        )
        log = self.run.path / FOLDER / f"{self.rank}.txt"
        log.parent.mkdir(exist_ok=True)
        process.adopt_orphans()
        # Not the run's `alive` lock, which may be another machine's file system away; its own, beside its output.
        alive = open_lock(log.with_suffix(".alive"))
        child = process.start([*argv, str(self.run.path)], CHECKOUT, env, log, [alive])
        self.say(f"Node {self.rank} of run {self.run.id}: training; its output is in {log}")
        try:
            code = self.attend(link, child)
        finally:
            process.end_group(child.pid, signal.SIGKILL)
            child.wait()
            process.sweep(1.0)
            os.close(alive)
        words = last_line(log) if code not in (0, 3) else ""
        link.send(ended=code, words=words)
        self.part(link)
        self.say(
            f"Node {self.rank} of run {self.run.id}: {'ended' if code in (0, 3) else f'failed: {words}'}"
        )
        return code

    def attend(self, link: Link, child: subprocess.Popen[bytes]) -> int:
        """Until the training ends, pass on what node 0 says; a lost node 0 ends it."""
        kill_at = float("inf")
        told = False
        while child.poll() is None:
            if self.asked and not told:
                told = True
                child.send_signal(signal.SIGTERM)
            try:
                for word in link.receive():
                    if "stop" in word:
                        self.asked = True
                    if "end" in word:
                        kill_at = min(kill_at, time.monotonic() + float(word["end"]))
                        child.send_signal(signal.SIGTERM)
            except Lost as lost:
                if kill_at == float("inf"):
                    self.say(f"Node {self.rank} of run {self.run.id}: node 0 is lost ({lost}); ending")
                    kill_at = time.monotonic() + GRACE
                    child.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            if time.monotonic() > kill_at:
                process.end_group(child.pid, signal.SIGKILL)
                for pid in process.descendants(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
            wait_for([link], 0.2)
        if told and child.returncode == -signal.SIGTERM:
            return STOPPED  # asked as it was ending by itself: Python's last moments take no signal
        return 128 - child.returncode if child.returncode < 0 else child.returncode

    def part(self, link: Link) -> None:
        """Give node 0 the time to hear how this node ended."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if any("bye" in word for word in link.receive()):
                    return
            except Lost:
                return
            wait_for([link], 0.2)

    def _on_signal(self, number: int, frame: object) -> None:
        self.asked = True


def refuse_ended(run: Run) -> None:
    """Raise FactoryError when the run is over: nobody will come. Only what is written counts, locks are node 0's."""
    try:
        state = read_json(run.state_json).get("state")
    except (OSError, ValueError):
        return  # it is being written
    if state in ENDS:
        text = (
            f"Run {run.id} has ended ({state}); start it again on its first machine: factory resume {run.id}"
        )
        raise refuse("run_not_running", text, value=run.id, state=state)


def seen(run: Run) -> Run:
    """The run, when this machine sees its folder. Raises FactoryError when it does not."""
    if not run.plan_json.exists():
        text = (
            f"This machine does not see the run folder {run.path}: the home folder of a run on several nodes must be "
            "on a file system that all of them share, under the same path."
        )
        raise refuse("home_not_shared", text, value=str(run.path))
    return run
