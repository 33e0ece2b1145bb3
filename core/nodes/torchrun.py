"""Node 0 of a run on several machines: `python -m core.nodes.torchrun RUN`, the child of the run's supervisor.

It waits for the other nodes (started over ssh, or by their users with the command that it tells), starts the training
on all of them at once, passes a stop on, and ends everything when one of them fails or is lost. Its exit code is that
of its own part of the training, which has rank 0: 0 done, 1 failed, 2 refused, 3 stopped.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from core.job.spec import JobSpec
from core.launchers.torchrun import Spec, node_words, ssh_words
from core.nodes.link import Link, Lost, joined, split_endpoint, wait_for
from core.nodes.meeting import FOLDER, difference, remove_note, write_note
from core.nodes.place import network
from core.nodes.rendezvous import command_of_node
from core.runs import process
from core.runs.events import Error, EventWriter, Phase
from core.runs.folder import Run
from core.runs.storage import last_line, read_json

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 3
CHECKOUT = Path(__file__).resolve().parents[2]
ORDERLY = (DONE, STOPPED)
LAST_WORD = 15.0
"""Seconds that the other parts get to end by themselves when one has failed, before they are told to."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for parts that have nothing left to do."""


class Failed(Exception):
    """The run cannot go on. Holds the code and the sentence of its error event."""

    def __init__(self, code: str, text: str, exit: int = FAILED) -> None:
        super().__init__(text)
        self.code, self.exit = code, exit


class Stopped(Exception):
    """Somebody asked to stop before the training began."""


class Head:
    """Node 0: the line to each other node by its rank, and the own part of the training."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.job = JobSpec.model_validate(read_json(run.job_json))
        self.plan = read_json(run.plan_json)
        assert isinstance(self.job.launcher, Spec)
        self.spec = self.job.launcher
        self.nodes = self.job.hardware.nodes
        self.writer = EventWriter(run.events)
        self.links: dict[int, Link] = {}
        self.hosts: dict[int, str] = {}
        self.shells: dict[int, subprocess.Popen[bytes]] = {}
        self.ended: dict[int, int] = {}
        self.asked = False
        self.kept = process.inherited_locks()

    def main(self) -> int:
        """Gather, train, part; the exit code says how it ended."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        process.adopt_orphans()
        try:
            self.gather()
            return self.train()
        except Stopped:
            return STOPPED
        except Failed as problem:
            self.writer.emit(Error(code=problem.code, message=str(problem), field="launcher"))
            return problem.exit
        finally:
            remove_note(self.run)
            self.part()

    def gather(self) -> None:
        """Open the endpoint, have the nodes started, and wait until all are here."""
        assert self.spec.endpoint is not None
        address, port = split_endpoint(self.spec.endpoint)
        key = secrets.token_hex(16)
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, port), family=family, backlog=self.nodes)
        except OSError as error:
            text = (
                f"The endpoint {self.spec.endpoint} cannot be opened on this machine ({error.strerror}); set "
                "launcher.endpoint to an address of this machine and a free port."
            )
            raise Failed("endpoint_unusable", text, REFUSED) from error
        with listener:
            listener.setblocking(False)
            write_note(self.run, self.spec.endpoint, key, self.nodes)
            self.start_nodes()
            deadline = time.monotonic() + self.spec.timeout
            strangers: list[Link] = []
            while len(self.links) < self.nodes - 1:
                self.check_gathering(deadline)
                wait_for([listener, *strangers, *self.links.values()], 0.3)
                with contextlib.suppress(BlockingIOError):
                    strangers.append(Link(listener.accept()[0]))
                strangers = [one for one in strangers if not self.admit(one, key)]
                for rank, link in list(self.links.items()):
                    self.hear(rank, link)
            for one in strangers:
                one.close()

    def start_nodes(self) -> None:
        """Start the other nodes over ssh; without hosts, tell the command of each."""
        for rank, host in enumerate(self.spec.hosts, 1):
            self.hosts[rank] = host
            log = self.run.path / FOLDER / f"{rank}.ssh.txt"
            log.parent.mkdir(exist_ok=True)
            log.unlink(missing_ok=True)
            argv = ssh_words(self.spec, host, self.run.home, self.run.id, rank)
            try:
                self.shells[rank] = process.start(argv, CHECKOUT, os.environ, log, self.kept)
            except OSError as error:
                text = f"ssh could not be started ({error.strerror}); install it, or start the nodes by hand."
                raise Failed("ssh_missing", text, REFUSED) from error
        if not self.spec.hosts:
            words = [
                shlex.join(node_words(self.run.home, self.run.id, rank)) for rank in range(1, self.nodes)
            ]
            names = ("on the other node", "") if self.nodes == 2 else ("on each other node its own", "s")
            text = f"Waiting for {self.nodes - 1} node{names[1]}; run {names[0]}: {'  |  '.join(words)}"
            self.writer.emit(Phase(name="waiting", text=text))
        else:
            text = f"Waiting for {', '.join(self.spec.hosts)} over ssh"
            self.writer.emit(Phase(name="waiting", text=text))

    def check_gathering(self, deadline: float) -> None:
        """Give up when asked to, when a node's ssh has ended, or when the time is over."""
        if self.asked:
            raise Stopped
        for rank, shell in self.shells.items():
            if rank not in self.links and shell.poll() is not None:
                words = last_line(self.run.path / FOLDER / f"{rank}.ssh.txt")
                text = f"Node {rank} ({self.hosts[rank]}) did not come: {words or f'ssh ended with {shell.returncode}'}"
                raise Failed("node_missing", text)
        if time.monotonic() > deadline:
            absent = [self.name(rank) for rank in range(1, self.nodes) if rank not in self.links]
            text = (
                f"{' and '.join(absent)} did not come to {self.spec.endpoint} within {self.spec.timeout} s: is it on, "
                "does it reach that address, and was its command started?"
            )
            raise Failed("node_missing", text[0].upper() + text[1:])

    def admit(self, link: Link, key: str) -> bool:
        """Take in a node that showed the key; True when this line is dealt with."""
        try:
            told = link.receive()
        except Lost:
            link.close()
            return True
        if not told:
            return False
        rank, host = told[0].get("rank"), str(told[0].get("host"))[:100]
        if not hmac.compare_digest(str(told[0].get("key")), key):
            link.close()  # somebody on the network who cannot read the run folder
        elif not isinstance(rank, int) or not 1 <= rank < self.nodes or rank in self.links:
            link.send(refused=f"rank {rank} is taken or not one of 1 to {self.nodes - 1}")
        elif (other := difference(self.plan, told[0])) is not None:
            link.send(refused=f"it has {other}")
            text = f"Node {rank} ({host}) has {other}: all nodes need the same; install it alike there."
            raise Failed("node_differs", text)
        else:
            self.links[rank] = link
            self.hosts.setdefault(rank, host)
            self.writer.emit(Phase(name="waiting", text=f"{self.name(rank)} is here"))
        return True

    def train(self) -> int:
        """Start the training everywhere and stay with it."""
        child, log = self.begin()
        killed = told = False
        blame: Failed | None = None
        deadline = float("inf")
        while (code := child.poll()) is None:
            if self.asked and not told:
                told = True
                child.send_signal(signal.SIGTERM)
                self.say(stop=True)
            if blame is None and (blame := self.listen()) is not None:
                deadline = time.monotonic() + LAST_WORD
            if time.monotonic() > deadline:
                number = signal.SIGKILL if killed else signal.SIGTERM
                killed, deadline = True, time.monotonic() + GRACE
                process.end_group(child.pid, number)
            wait_for(list(self.links.values()), 0.2)
        if told and code == -signal.SIGTERM:
            code = STOPPED  # asked as it was ending by itself: Python's last moments take no signal
        code = 128 - code if code < 0 else code
        if blame is None:
            blame = self.last_words(code)
        if blame is not None:
            raise blame
        return code

    def begin(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Tell all nodes to begin, and begin here."""
        own = next(iter(self.links.values())).own_address
        meeting, key = joined(own, _free_port(own)), f"{self.run.id}-{secrets.token_hex(4)}"
        self.say(go=meeting, id=key, nodes=self.nodes, timeout=self.spec.timeout)
        env = {**os.environ, **network(self.spec.interface, own, os.environ)}
        argv = command_of_node(
            self.plan["training"], 0, self.nodes, meeting, key=key, timeout=self.spec.timeout
        )
        self.writer.emit(Phase(name="starting", text=f"Training on {self.nodes} nodes"))
        return process.start(
            [*argv, str(self.run.path)], CHECKOUT, env, self.run.log, self.kept
        ), self.run.log

    def listen(self) -> Failed | None:
        """What the other nodes say; why the run cannot go on, when one of them failed or is lost."""
        blame = None
        for rank, link in list(self.links.items()):
            try:
                self.hear(rank, link)
            except Failed as problem:
                blame = blame or problem
        return blame

    def hear(self, rank: int, link: Link) -> None:
        """Take in what a node says. Raises Failed when it is lost or its training failed."""
        if rank in self.ended:
            return
        try:
            told = link.receive()
        except Lost as lost:
            self.ended[rank] = FAILED
            raise Failed("node_lost", f"{self.name(rank)} was lost: {lost}.") from lost
        for word in told:
            if "ended" in word:
                self.ended[rank] = int(word["ended"])
                if self.ended[rank] not in ORDERLY:
                    said = (
                        str(word.get("words") or "") or f"its training ended with exit code {word['ended']}"
                    )
                    raise Failed("node_failed", f"{self.name(rank)} failed: {said[:300]}")

    def last_words(self, code: int) -> Failed | None:
        """Own part over: what the others say about their ends, which may explain ours."""
        deadline = time.monotonic() + (60.0 if code in ORDERLY else LAST_WORD)
        while len(self.ended) < len(self.links) and time.monotonic() < deadline:
            if (blame := self.listen()) is not None:
                return blame if code != REFUSED else None
            wait_for(list(self.links.values()), 0.2)
        return None

    def say(self, **word: Any) -> None:
        """The same to all nodes."""
        for link in self.links.values():
            link.send(**word)

    def part(self) -> None:
        """End what is left on every node, and this machine's ssh."""
        self.say(end=GRACE)
        deadline = time.monotonic() + GRACE + 5
        while len(self.ended) < len(self.links) and time.monotonic() < deadline:
            self.listen()
            wait_for(list(self.links.values()), 0.2)
        self.say(bye=True)
        deadline = time.monotonic() + 3
        while any(shell.poll() is None for shell in self.shells.values()) and time.monotonic() < deadline:
            for link in self.links.values():
                with contextlib.suppress(Lost):
                    link.receive()  # sends what is unsent
            time.sleep(0.1)
        for shell in self.shells.values():
            process.end_group(shell.pid, signal.SIGTERM)
        for link in self.links.values():
            link.close()
        process.sweep(1.0)

    def name(self, rank: int) -> str:
        """`Node 1 (gpu-7)`."""
        return f"Node {rank} ({self.hosts[rank]})" if rank in self.hosts else f"Node {rank}"

    def _on_terminate(self, number: int, frame: object) -> None:
        self.asked = True


def _free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as one:
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit(Head(Run(Path(sys.argv[1]))).main())
