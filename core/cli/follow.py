"""What a run looks like from a terminal while it goes on, and when it is over. Knows events, not their makers."""

from __future__ import annotations

import re
import shlex
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from core.cli.show import coloured, say
from core.runs.folder import Run
from core.runs.states import Status, read_status
from data.words import byte_size, number

if TYPE_CHECKING:
    from core.runs.events import Metric, Sample

CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-_][0-?]*[ -/]*[@-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
"""Escape sequences and control characters: what a model or a library prints must not drive the terminal."""


@dataclass
class Progress:
    """Where a run is, from its metrics; times by the monotonic clock."""

    total: int | None = None
    step: int = 0
    values: dict[str, float] = field(default_factory=dict)
    _first: tuple[int, float] | None = None
    _last: float = 0.0

    def hear(self, metric: Metric) -> None:
        """Take in the numbers of a step."""
        self.step = max(self.step, metric.step)
        self.values |= metric.values
        if self._first is None:
            self._first = (metric.step, metric.mono)
        self._last = metric.mono

    def seconds_left(self) -> float | None:
        """Seconds to the last step at the pace so far; None before there is a pace."""
        if self._first is None or not self.total or self.step <= self._first[0]:
            return None
        return (self._last - self._first[1]) / (self.step - self._first[0]) * (self.total - self.step)

    def words(self, *, finished: bool = False) -> str:
        """One line: step, loss, tokens per second, and time left unless `finished`."""
        total = f"/{self.total}" if self.total else ""
        width = len(str(self.total or ""))
        parts = [f"step {self.step:>{width}}{total}"]
        for name in ("loss", "eval_loss"):
            if name in self.values:
                parts.append(f"{name} {number(self.values[name])}")
        if (rate := self.values.get("tokens_per_second")) is not None:
            parts.append(f"{rate:,.0f} tokens/s")
        if not finished and (left := self.seconds_left()) is not None:
            parts.append(f"{clock(left)} left")
        return "   ".join(parts)


WAITING = "waiting for a free device"


class Screen:
    """Lines, and on a terminal one live line below them that shows where the run is."""

    def __init__(self, *, err: bool) -> None:
        self._err = err
        self._live: Any = None
        stream = sys.stderr if err else sys.stdout
        if stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(file=stream, highlight=False), auto_refresh=False, transient=True
            )
            self._live.start()

    @property
    def live(self) -> bool:
        """Whether there is a live line, so that numbers need no line of their own."""
        return self._live is not None

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._live is None:
            say(text, err=self._err)
        else:
            self._live.console.print(text, markup=False, soft_wrap=True)

    def show(self, text: str, share: float | None = None) -> None:
        """What the live line says now; `share` of 1 is drawn as a bar."""
        if self._live is None:
            return
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 1))
        bar = [] if share is None else [ProgressBar(total=1.0, completed=share, width=24)]
        grid.add_row(*bar, text)
        self._live.update(grid, refresh=True)

    def close(self) -> None:
        """Take the live line away. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class Follower:
    """Follows one attempt of a run to its end; what it saw stays for the closing words."""

    def __init__(self, run: Run, *, err: bool = False) -> None:
        self.run = run
        self.progress = Progress(read_status(run).record.get("total_steps"))
        self.samples: list[Sample] = []
        self.doing = "waiting for its supervisor"
        self.finishing = False
        self.screen = Screen(err=err)
        self._since, self._told = time.monotonic(), False

    def follow(self, offset: int = 0) -> Status:
        """Show what happens from byte `offset` of the events on, until the run is over. KeyboardInterrupt passes."""
        from core.runs.events import follow

        try:
            for event in follow(self.run.events, offset, lambda: read_status(self.run).over):
                if event is not None:
                    self._hear(event)
                self._draw()
        finally:
            live = self.screen.live
            self.screen.close()
        if live and self.progress.step:  # the live line is gone; its last numbers are worth keeping
            self.screen.line(self.progress.words(finished=True))
        return read_status(self.run)

    def _hear(self, event: Any) -> None:
        kind = event.event
        if kind == "state":
            self._state(event.state, event.attempt)
        elif kind == "start":
            self.progress.total = event.total_steps
        elif kind == "phase":
            self.doing = event.text or event.name
            self.finishing = bool(self.progress.step)
            self.screen.line(plain(self.doing))
        elif kind == "metric":
            self.progress.hear(event)
            if not self.screen.live and {"loss", "eval_loss"} & set(event.values):
                self.screen.line(self.progress.words())
        elif kind == "sample":
            self.samples.append(event)
        elif kind == "checkpoint":
            self.doing = f"saved {event.path}"
        elif kind == "warning":
            colour = typer.colors.BLUE if event.level == "note" else typer.colors.YELLOW
            self.screen.line(coloured(f"{event.level:<7}", colour, err=True) + f"  {plain(event.message)}")

    def _state(self, state: str, attempt: int) -> None:
        if state == "queued" and attempt > 1:
            self.progress, self.samples = Progress(self.progress.total), []
        words = {
            "queued": WAITING,
            "starting": "starting",
            "stopping": "saving and stopping",
        }
        if state in words:
            self.doing = words[state]

    def _draw(self) -> None:
        if not self.screen.live:
            self._say_that_it_waits()
            return
        progress = self.progress
        if progress.step and progress.step == progress.total and self.finishing:
            self.screen.show(f"{progress.words(finished=True)}   {plain(self.doing)}", 1.0)
        elif progress.step:
            self.screen.show(progress.words(), progress.step / progress.total if progress.total else None)
        else:
            self.screen.show(plain(self.doing))

    def _say_that_it_waits(self) -> None:
        """Once, where there is no live line: a log that ends in silence looks like a run that hangs."""
        if self.doing == WAITING and not self._told and time.monotonic() - self._since > 1.0:
            self._told = True
            self.screen.line(f"{WAITING}; factory runs shows the place in the queue")


def watch(run: Run, *, offset: int = 0, err: bool = False) -> tuple[Follower, Status]:
    """Follow a run and let Ctrl-C ask what shall become of it. Its state when it is over, or when we left it."""
    follower = Follower(run, err=err)
    while True:
        try:
            return follower, follower.follow(offset)
        except KeyboardInterrupt:
            if not _asked_to_stay(run):
                return follower, read_status(run)
            offset = run.events.stat().st_size
            follower.screen = Screen(err=err)


def _asked_to_stay(run: Run) -> bool:
    """Ask after Ctrl-C: stop the run (and stay to see it end), or leave it running; True to go on following."""
    from core.runs import control

    left = f"Run {run.id} goes on. Follow it again: factory logs -f {run.id}   Stop it: factory stop {run.id}"
    if not sys.stdin.isatty():
        say(left, err=True)
        return False
    try:
        answer = typer.prompt(
            "Stop the run (it saves first), detach and leave it running, or go on? [s/d/g]", err=True
        )
    except (typer.Abort, KeyboardInterrupt):
        answer = "d"
    if answer.strip().lower().startswith("s"):
        if not read_status(run).over:
            control.stop(run)
        return True
    if answer.strip().lower().startswith("g"):
        return True
    say(left, err=True)
    return False


def countdown(run: Run) -> Status:
    """Wait for a run that was asked to stop, the time until it is enforced shown. KeyboardInterrupt passes."""
    screen = Screen(err=True)
    try:
        while not (status := read_status(run)).over:
            until = status.record.get("grace_until") if status.state == "stopping" else None
            left = f", {clock(max(0.0, until - time.time()))} until it is killed" if until else ""
            screen.show(f"{run.id} is {status.state}{left} (factory stop {run.id} --now ends it at once)")
            time.sleep(0.1)
        return status
    finally:
        screen.close()


def closing_words(run: Run, status: Status, samples: list[Sample]) -> str:
    """What is said when a run is over: answers before and after, where the model lies, what to do next."""
    if status.state == "succeeded":
        return "\n".join([*_answers(samples), *_result(run), *_exports(status), *next_commands(run)])
    reason = f": {plain(status.reason)}" if status.reason else "."
    lines = [f"Run {run.id} {'is lost' if status.state == 'lost' else status.state}{reason}"]
    if status.over and (checkpoint := _checkpoint(status)):
        lines.append(f"It can go on from {checkpoint}: factory resume {run.id}")
    if status.state == "failed":
        lines.append(f"Its output: factory logs {run.id}")
    lines += card_lines(status)
    return "\n".join(lines)


def _where(run: Run) -> str:
    """Where the model lies, and of which step it is when that was chosen."""
    from core.runs.checkpoints import marker

    facts = marker(run.model) or {}
    if (loss := facts.get("best_eval_loss")) is None:
        return f"The model lies in {run.model}"
    return (
        f"The model lies in {run.model}: the best weights, of step {facts['step']} (eval_loss {number(loss)})"
    )


def card_lines(status: Status) -> list[str]:
    """The error card of a run that failed or is lost, as lines; none when there is nothing to advise."""
    from core.runs.cards import card_of

    card = card_of(status)
    return [plain(line) for line in card.lines()] if card else []


def next_commands(run: Run) -> list[str]:
    """The next commands worth trying, of those this version has."""
    from core.runs.result import next_steps

    again = f"factory train {shlex.quote(str(run.job_json))}   (the same run again)"
    known = [*next_steps(run).values(), f"factory logs {run.id}", again]
    first, *others = known[:3]
    return [f"Next:  {first}", *(f"       {other}" for other in others)]


def plain(text: str | None) -> str:
    """Text that cannot drive the terminal: escape sequences and control characters taken out."""
    return CONTROL.sub("", text or "")


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:30 or 3:02:11."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _answers(samples: list[Sample]) -> list[str]:
    """What training changed: answers to the same prompts before and after; those on the way are left out."""
    lines: list[str] = []
    asked = [sample for sample in samples if sample.kind in ("before", "after")]
    for prompt in dict.fromkeys(sample.prompt for sample in asked):
        told = {sample.kind: sample.answer for sample in asked if sample.prompt == prompt}
        lines += ["", _entry("asked", prompt)]
        lines += [_entry(kind, told[kind]) for kind in ("before", "after") if kind in told]
    return [*lines, ""] if lines else []


def _result(run: Run) -> list[str]:
    """The result card without its answers: what training changed, and what it left."""
    from core.runs.result import result_card

    card = result_card(run)
    place = _where(run)
    if card is None:
        return [place]
    both = [value for value in (card.base, card.tuned) if value is not None]
    change = " -> ".join(number(value) for value in both)
    lines = [f"{card.measure} {change}   {card.note}", ""] if both else []
    facts = [byte_size(card.model_bytes)]
    if card.trainable and card.parameters:
        facts.append(f"{_short(card.trainable)} of {_short(card.parameters)} weights trained")
    if card.seconds is not None:
        facts.append(clock(card.seconds))
    return [*lines, f"{place}   ({', '.join(facts)})"]


def _short(count: int) -> str:
    """A number of weights in words: `2.4 M`."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)


def _exports(status: Status) -> list[str]:
    """What became of the exports that the job asked for."""
    made = [f"Exported {one['target']} to {one['path']}" for one in status.record.get("exports") or []]
    missing = [
        coloured(f"error  {plain(one)}", typer.colors.RED)
        for one in status.record.get("exports_missing") or []
    ]
    return [*made, *missing, *([f"Try again: factory export {status.run.id} --to TARGET"] if missing else [])]


def _entry(label: str, text: str) -> str:
    one = " ".join(plain(text).split())
    return f"  {label:<6}  {one[:500] or '(nothing)'}{'…' if len(one) > 500 else ''}"


def _checkpoint(status: Status) -> str | None:
    from core.runs.states import last_checkpoint

    return last_checkpoint(status.run)


def exit_code(status: Status) -> int:
    """0 when the run succeeded with its exports or goes on without us, 2 when its input was refused, else 1."""
    if status.state == "succeeded" or not status.over:
        return 1 if status.record.get("exports_missing") else 0
    return 2 if status.state == "failed" and status.record.get("exit") == 2 else 1
