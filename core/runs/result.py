"""The result card of a run: what training changed, in numbers and in answers, and what to do with it next.

Read from the run folder alone, for the terminal, the board and scripts.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from core.runs.checkpoints import is_complete, marker
from core.runs.events import read_events
from core.runs.folder import Run
from core.runs.storage import read_json

PROMPTS = 10
"""Prompts on the card; a job may ask more."""


class Answers(BaseModel):
    """One prompt answered by both models."""

    model_config = ConfigDict(frozen=True)

    prompt: str
    base: str | None
    tuned: str | None


class ResultCard(BaseModel):
    """What a finished run has to show."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    measure: str
    """What is compared: eval_loss (held-out rows), loss (training rows), or reward."""
    base: float | None
    """The measure before training."""
    tuned: float | None
    """The measure of the finished model."""
    held_out: bool
    """Whether both were taken on the same rows that training never saw."""
    rows: int | None
    """How many those rows are."""
    note: str
    """In a sentence what the two numbers are."""
    answers: list[Answers]
    """Up to ten prompts, answered by both."""
    model_bytes: int
    """The model folder."""
    trainable: int | None
    """Weights that moved."""
    parameters: int | None
    """All weights."""
    seconds: float | None
    """From the first phase to the finished model, of the last attempt."""
    next: dict[str, str]
    """What to do with it: a word for the button, a command for the terminal."""


def result_card(run: Run) -> ResultCard | None:
    """The card of a run whose model is whole; None before that. Raises OSError."""
    if not is_complete(run.model):
        return None
    events, _ = read_events(run.events)
    begin = max((place for place, event in enumerate(events) if event.event == "ready"), default=0)
    attempt = events[begin:]
    told = _last(events, "result")
    start = _last(events, "start")
    done = _last(events, "done")
    measure = told.name if told else "loss"
    return ResultCard(
        measure=measure,
        base=told.before if told else None,
        tuned=told.after if told else None,
        held_out=bool(told and told.held_out),
        rows=told.rows if told else None,
        note=_note(measure, told),
        answers=_answers(events),
        model_bytes=sum((marker(run.model) or {"files": {}})["files"].values()),
        trainable=start.trainable if start else None,
        parameters=start.parameters if start else None,
        seconds=round(done.mono - attempt[0].mono, 1) if done and attempt else None,
        next=next_steps(run),
    )


def next_steps(run: Run) -> dict[str, str]:
    """Commands worth trying with a finished model, of those this version has."""
    from importlib.util import find_spec

    stage = _job(run).get("stage") or {}
    writes = (stage.get("name") if isinstance(stage, dict) else stage) != "reward"
    offers = {
        "chat": f"factory chat {run.id}" if writes else None,
        "export": f"factory export {run.id} --to {'gguf' if writes else 'merged'}",
        "serve": f"factory serve {run.id}" if writes else None,
    }
    return {word: command for word, command in offers.items() if command and find_spec(f"core.cli.{word}")}


def _note(measure: str, told: Any) -> str:
    if told is None:
        return "This run was made by an older version, which kept no comparison."
    if told.held_out:
        if told.before is None:
            return f"Loss on {told.rows:,} held-out rows; that of the base was not taken."
        return f"Loss of the base and of the tuned model on the same {told.rows:,} held-out rows."
    if measure == "reward":
        return "Mean reward of the first and of the last record; this stage has no held-out loss."
    return "No rows were held out (data.eval), so these are the training losses of the first and the last record."


def _answers(events: list[Any]) -> list[Answers]:
    asked: dict[str, dict[str, str]] = {}
    for event in events:
        if event.event == "sample" and event.kind in ("before", "after"):
            asked.setdefault(event.prompt, {})[event.kind] = event.answer
    found = [
        Answers(prompt=prompt, base=told.get("before"), tuned=told.get("after"))
        for prompt, told in asked.items()
    ]
    return found[:PROMPTS]


def _last(events: list[Any], kind: str) -> Any:
    return next((event for event in reversed(events) if event.event == kind), None)


def _job(run: Run) -> dict[str, Any]:
    try:
        found = read_json(run.job_json)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
