"""A conversation at the terminal: what is typed, the words that begin with a stroke, and answers as they come."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from core.chat import feedback
from core.chat.pool import Pool
from core.chat.settings import Settings, settings_of
from core.chat.speakers import Speaker, base_of, find_speaker
from core.cli.follow import plain
from core.cli.show import coloured, finding_lines, pairs, say
from data.errors import FactoryError, refuse
from data.userpath import user_path

QUIET = typer.colors.BRIGHT_BLACK


class Talk:
    """One conversation. Notes go to stderr, answers to stdout, so that a pipe gets answers alone."""

    def __init__(
        self,
        pool: Pool,
        home: Path,
        speaker: Speaker,
        beside: Speaker | None,
        system: str | None,
        settings: dict[str, Any],
    ) -> None:
        self._pool, self._home, self.speaker, self.beside = pool, home, speaker, beside
        self.system, self.settings = system, settings
        self.turns: list[dict[str, str]] = []
        self.answers: dict[str, str] = {}
        """Key of the speaker -> its newest answer."""

    def run(self) -> None:
        """Talk until the input ends. Raises FactoryError when the model cannot be loaded at all."""
        self._greet()
        with _history(self._home / "cache" / "chat" / "history"):
            going_on = True
            while going_on:
                try:
                    if going_on := (line := _ask()) is not None:
                        self.hear(line)
                except FactoryError as problem:
                    for text in finding_lines(problem.findings, err=True):
                        say(text, err=True)
                except KeyboardInterrupt:  # an answer that had just ended, or a word, but never the talk
                    say("  (Ctrl-D leaves)", err=True)

    def hear(self, line: str) -> None:
        """Do what a line says: a word with a stroke, or something to answer. Raises FactoryError."""
        text = line.strip()
        if not text:
            return
        if text.startswith("/") and not text.startswith("//"):
            word, _, rest = text[1:].partition(" ")
            self._word(word)(rest.strip())
        else:
            self.ask(text.removeprefix("/") if text.startswith("//") else text)

    def ask(self, text: str) -> None:
        """Ask and show the answer; Ctrl-C keeps what was said so far."""
        self.turns.append({"role": "user", "content": text})
        asked, settings = self._with_system(), dict(self.settings)
        self.answers = {}
        speakers = [self.speaker, *([self.beside] if self.beside else [])]
        try:
            for speaker in speakers:
                if len(speakers) > 1:
                    say(coloured(f"{speaker.title}", typer.colors.CYAN))
                done = self._answer(speaker, asked, settings)
                settings.setdefault("seed", done.get("seed"))  # the same dice for both
        finally:
            said = self.answers.get(self.speaker.key)
            if said:
                self.turns.append({"role": "assistant", "content": said})
            else:
                self.turns.pop()  # nothing came: the question may be asked again

    def _answer(
        self, speaker: Speaker, asked: list[dict[str, str]], settings: dict[str, Any]
    ) -> dict[str, Any]:
        said, done = "", {}
        try:
            with contextlib.closing(self._pool.answer(speaker, asked, settings)) as events:
                for event in events:
                    if event["event"] == "start" and event["cut"]:
                        note = f"The {event['cut']} oldest turns were left out: the context is full."
                        say(coloured(note, QUIET, err=True), err=True)
                    if event["event"] == "text":
                        said += event["text"]
                        typer.echo(plain(event["text"]), nl=False)
                        sys.stdout.flush()
                    if event["event"] == "done":
                        done = event
            say()
            self._tell_speed(done)
        except KeyboardInterrupt:
            say(coloured(" (stopped)", QUIET))
        self.answers[speaker.key] = said
        return done

    def _tell_speed(self, done: dict[str, Any]) -> None:
        rate = f", {done['tokens_per_second']:.1f} tokens/s" if done.get("tokens_per_second") else ""
        cut = "; it is cut, /set max_tokens makes it longer" if done["reason"] == "length" else ""
        say(coloured(f"{done['tokens']} tokens{rate}, seed {done['seed']}{cut}", QUIET, err=True), err=True)

    def _greet(self) -> None:
        say(f"Loading {self.speaker.title} ...", err=True)
        worker = self._pool.load(self.speaker)
        facts = worker.facts[self.speaker.key]
        where = "the CPU" if facts["device"] == "cpu" else "a GPU"
        parts = [f"{facts['parameters'] / 1e6:,.0f} M parameters on {where}"]
        if facts["context"]:
            parts.append(f"context {facts['context']:,} tokens")
        if facts["dtype"] != "float32" and facts["device"] == "cpu":
            parts.append("held in 16 bits to fit")
        say(f"{self.speaker.title}: {', '.join(parts)}.", err=True)
        if not facts["template"]:
            say("It has no chat template: it goes on with your text instead of answering it.", err=True)
        say("/help tells what there is, Ctrl-C stops an answer, Ctrl-D leaves.", err=True)

    def _word(self, word: str) -> Callable[[str], None]:
        words = _words(self)
        if word not in words:
            known = " ".join(f"/{one}" for one in words)
            text = f"There is no /{word[:40]}; there are {known} (begin a message that starts with a stroke with two)."
            raise refuse("word_unknown", text, value=word[:40])
        return words[word]

    def _help(self, rest: str) -> None:
        """this list"""
        say(
            pairs({f"/{name}": (made.__doc__ or "").strip() for name, made in _words(self).items()}), err=True
        )

    def _set_system(self, rest: str) -> None:
        """TEXT is the system prompt from now on; alone it shows it, - takes it away"""
        if rest:
            self.system = None if rest == "-" else rest
        say(self.system or "There is no system prompt.", err=True)

    def _reset(self, rest: str) -> None:
        """begin a new conversation; system prompt and settings stay"""
        self.turns, self.answers = [], {}
        say("A new conversation.", err=True)

    def _compare(self, rest: str) -> None:
        """let the model it came from answer too; RUN or MODEL takes another, off ends it"""
        if rest == "off" or (not rest and self.beside is not None):
            self.beside = None
            say("Only one answers.", err=True)
            return
        other = find_speaker(self._home, rest) if rest else base_of(self._home, self.speaker)
        if other is None:
            raise refuse("no_base", "This is a plain model; name another to compare with: /compare RUN.")
        self._pool.load(other)
        self.beside = other
        say(f"{other.title} answers beside it.", err=True)

    def _seed(self, rest: str) -> None:
        """N: the same question gives the same answer; - draws a new seed each time"""
        self._set(f"seed {rest or '-'}")

    def _set(self, rest: str) -> None:
        """NAME VALUE: temperature, top_p, max_tokens, stop, ...; - takes it back; alone shows all of them"""
        if rest:
            name, _, value = rest.replace("=", " ", 1).partition(" ")
            changed = {key: old for key, old in self.settings.items() if key != name}
            if value.strip() != "-":
                changed |= parse_settings([f"{name}={value.strip()}"])
            self.settings = changed
        shown = {name: getattr(settings_of(self.settings), name) for name in Settings.model_fields}
        unset = {"seed": "drawn anew each time", "stop": "none"}
        told = {name: value or unset.get(name, "as the model says") for name, value in shown.items()}
        say(pairs(told), err=True)

    def _good(self, rest: str) -> None:
        """keep the last answer as a good one, to train on (kto)"""
        self._rate(good=True)

    def _bad(self, rest: str) -> None:
        """keep the last answer as a bad one"""
        self._rate(good=False)

    def _prefer(self, rest: str) -> None:
        """1 or 2: keep which of two answers beside each other was better, to train on (dpo)"""
        if len(self.answers) < 2:
            raise refuse(
                "nothing_to_prefer", "There are no two answers to choose from: /compare first, then ask."
            )
        if rest not in ("1", "2"):
            raise refuse("prefer_which", "Say which answer was better: /prefer 1 or /prefer 2.", value=rest)
        first, second = self.answers.values()
        chosen, rejected = (first, second) if rest == "1" else (second, first)
        _kept(feedback.prefer(self._home, self._asked(), chosen, rejected))

    def _edit(self, rest: str) -> None:
        """TEXT: what the last answer should have been, to train on (sft and dpo)"""
        for saved in feedback.correct(self._home, self._asked(), self.turns[-1]["content"], rest):
            _kept(saved)
        self.turns[-1]["content"] = rest

    def _save(self, rest: str) -> None:
        """FILE: add the conversation to a file, as a row to train on"""
        if not rest or not self.turns:
            raise refuse("nothing_to_save", "Say where to, after at least one answer: /save FILE.")
        path = user_path(rest)
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"messages": self._with_system()}, ensure_ascii=False) + "\n")
        except OSError as problem:
            raise refuse(
                "not_saved", f"{path} cannot be written ({problem.strerror}); name another file."
            ) from None
        say(f"The conversation is in {path}.", err=True)

    def _template(self, rest: str) -> None:
        """the conversation as the model reads it"""
        if not self.turns:
            raise refuse("nothing_to_show", "Ask something first.")
        told = self._pool.render(self.speaker, self._with_system())
        say(plain(told["text"]), err=True)
        say(coloured(f"{told['count']} tokens", QUIET, err=True), err=True)

    def _rate(self, *, good: bool) -> None:
        _kept(feedback.rate(self._home, self._asked(), self.turns[-1]["content"], good=good))

    def _asked(self) -> list[dict[str, str]]:
        """The conversation up to the last question. Raises FactoryError when there is no answer to it."""
        if not self.turns:
            raise refuse("nothing_to_rate", "There is no answer yet; ask something first.")
        return self._with_system()[:-1]

    def _with_system(self) -> list[dict[str, str]]:
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.turns]


def _words(talk: Talk) -> dict[str, Callable[[str], None]]:
    return {
        "help": talk._help,
        "system": talk._set_system,
        "reset": talk._reset,
        "compare": talk._compare,
        "seed": talk._seed,
        "set": talk._set,
        "good": talk._good,
        "bad": talk._bad,
        "prefer": talk._prefer,
        "edit": talk._edit,
        "save": talk._save,
        "template": talk._template,
    }


def parse_settings(given: list[str]) -> dict[str, Any]:
    """Settings from NAME=VALUE. Raises FactoryError naming everything that is wrong."""
    values: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise refuse(
                "setting_invalid",
                f"{one!r} is no setting: write NAME=VALUE, as in temperature=0.2.",
                value=one,
            )
        name = name.strip()
        values[name] = [value] if name == "stop" else value if name == "long" else _number(value.strip())
    settings_of(values)
    return values


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _kept(saved: feedback.Saved) -> None:
    rows = "1 row" if saved.rows == 1 else f"{saved.rows} rows"
    say(f"Kept in {saved.path} ({rows}).", err=True)


def _ask() -> str | None:
    """The next message; lines that end with a backslash go on. None when the input ends."""
    lines: list[str] = []
    while True:
        try:
            line = input("... " if lines else "> ")
        except EOFError:
            say(err=True)
            return None
        except KeyboardInterrupt:
            say("  (Ctrl-D leaves)", err=True)
            lines = []
            continue
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            return "\n".join(lines)


@contextlib.contextmanager
def _history(path: Path) -> Any:
    """Arrow keys bring earlier messages back, those of earlier days too; the file is the user's alone."""
    try:
        import readline
    except ImportError:  # a Python built without it
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)
