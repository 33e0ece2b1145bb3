"""`factory chat` as people use it: piped, as JSON, and at a terminal with its words, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.cli.follow import plain

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A process whose terminal is ours."""

    def __init__(self, words: list[str], home: Path) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, 300))  # or readline scrolls long lines sideways
        environment = {**os.environ, "FACTORY_HOME": str(home), "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "core.cli", *words],
            cwd=ROOT,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=_own_terminal,
        )
        os.close(slave)
        self._heard = ""

    def until(self, word: str) -> str:
        """Everything that is said up to and with a word."""
        self._hear(lambda: word in self._heard)
        before, _, self._heard = self._heard.partition(word)
        return before + word

    def more(self) -> None:
        """Wait until it says anything more."""
        self._hear(lambda: bool(self._heard.strip()))

    def _hear(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not enough() and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self._heard += os.read(self._master, 65_536).decode("utf-8", "replace")
                except OSError:  # it has ended
                    break
        assert enough(), self._heard

    def press(self, key: str, enough: Callable[[], bool]) -> None:
        """Press a key until it is taken: one pressed between a prompt and the wait for it is lost (CPython 3.11)."""
        for _ in range(60):
            self.type(key)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                if enough():
                    return
                time.sleep(0.02)
        raise AssertionError(f"{key!r} changes nothing: {self._heard}")

    def says(self, word: str) -> bool:
        """Whether a word has been said that nobody has read."""
        while select.select([self._master], [], [], 0)[0]:
            self._heard += os.read(self._master, 65_536).decode("utf-8", "replace")
        return word in self._heard

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def ask(self, line: str) -> str:
        """Type a line; what is said up to the next prompt."""
        self.type(line + "\n")
        self.until(line)
        return plain(self.until("\n> "))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


def _own_terminal() -> None:
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tiny: str, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(["chat", tiny, "-s", "max_tokens=16", "--system", "Be short."], tmp_path)
    yield made
    made.close()


def test_a_conversation_with_its_words_until_ctrl_d(terminal: Terminal, tmp_path: Path) -> None:
    greeting = terminal.until("\n> ")
    assert "parameters on the CPU" in greeting and "Ctrl-D leaves" in greeting
    assert "no answer yet" in terminal.ask("/good")
    first = terminal.ask("Hello there")
    assert "16 tokens" in first and "seed" in first
    terminal.ask("/seed 5")
    same = []
    for _ in range(2):
        terminal.ask("/reset")
        same.append(terminal.ask("Once more").splitlines()[1:-2])
    assert same[0] == same[1] and same[0]
    assert "chat-feedback.jsonl (1 row)" in terminal.ask("/good")
    assert "chat-edited.jsonl (1 row)" in terminal.ask("/edit I am Pharos.")
    assert "temperature" in terminal.ask("/set temperature 0.2")
    assert "a number from 0 to 5, not 99" in terminal.ask("/set temperature 99")
    shown = terminal.ask("/template")
    assert "Be short." in shown and "I am Pharos." in shown and "tokens" in shown
    assert "there are /help" in terminal.ask("/nonsense")
    assert "Ctrl-D" not in terminal.ask("/help")
    assert "plain model" in terminal.ask("/compare")
    saved = tmp_path / "talk.jsonl"
    assert str(saved) in terminal.ask(f"/save {saved}")
    assert json.loads(saved.read_text())["messages"][0] == {"role": "system", "content": "Be short."}
    row = json.loads((tmp_path / "data" / "chat-feedback.jsonl").read_text())
    assert row["label"] is True and row["prompt"][0]["role"] == "system"
    terminal.press("\x03", lambda: terminal.says("Ctrl-D leaves"))
    assert terminal.process.poll() is None
    terminal.press("\x04", lambda: terminal.process.poll() is not None)
    assert terminal.process.returncode == 0


def test_ctrl_c_stops_an_answer_and_not_the_conversation(zygote, tmp_path: Path) -> None:
    slow = zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "slow"), layers=12, hidden=256)
    terminal = Terminal(
        ["chat", slow, "-s", "max_tokens=480", "-s", "temperature=3", "-s", "top_k=0"], tmp_path
    )
    try:
        terminal.until("\n> ")
        for _ in range(9):
            terminal.type("Tell me everything\n")
            terminal.until("everything")
            terminal.more()
            os.kill(terminal.process.pid, signal.SIGINT)
            said = terminal.until("\n> ")
            if "(stopped)" in said:
                break
            if "Ctrl-D leaves" not in said:  # an untrained model may have ended before
                terminal.until("Ctrl-D leaves")
                terminal.until("> ")
        else:
            pytest.fail("no answer of nine was stopped")
        terminal.ask("/set max_tokens 8")  # an untrained model may end sooner: at most eight
        assert re.search(r"\n[1-8] tokens?,", terminal.ask("And now?"))
    finally:
        terminal.close()


def test_a_pipe_gets_the_answer_alone_and_json_tells_the_rest(tiny: str, tmp_path: Path) -> None:
    def chat(text: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "core.cli",
            "--home",
            str(tmp_path),
            "chat",
            tiny,
            "-s",
            "seed=7",
            *more,
        ]
        return subprocess.run(
            command, cwd=ROOT, input=text, capture_output=True, text=True, check=False, timeout=120
        )

    said = chat("What is 3 and 3?", "-s", "max_tokens=16")
    told = json.loads(chat("What is 3 and 3?", "-s", "max_tokens=16", "--json").stdout)
    assert said.stdout == plain(told["text"]) + "\n" and (said.stderr, said.returncode) == ("", 0)
    assert told["tokens"] == 16 and told["seed"] == 7
    assert chat("").returncode == 2
    wrong = chat("x", "-s", "temperature=hot", "-s", "colour=1")
    assert wrong.returncode == 2 and "temperature" in wrong.stderr
