"""Routes for talking to models: who there is, an answer as it comes, stop, what lies in memory, and what was good."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from pydantic import ConfigDict, Field

from core.chat import feedback
from core.chat.pool import Pool, note_on_training
from core.chat.settings import FALLBACK, Settings, settings_of, turns_of
from core.chat.speakers import Speaker, by_key, list_speakers
from core.job.schema import field_help
from data.errors import FactoryError, Finding, refuse
from data.userpath import user_path
from webui.answering import Answering
from webui.api import body
from webui.api.chat_answers import (
    ChatFeedback,
    ChatLoaded,
    ChatRendered,
    ChatSpeakers,
    ChatState,
    ChatStopped,
    ChatUnloaded,
)
from webui.api.here import Here, InHere, Json

router = APIRouter(prefix="/chat", tags=["chat"])
KEY = Field(min_length=1, max_length=4000, description="Whose: a key of /api/chat/speakers, as run:ID@STEP.")
Messages = Annotated[list[Json], Field(min_length=1, max_length=2000, description="Turns: role and content.")]
Text = Annotated[str, Field(max_length=1 << 20)]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "Server-sent events, data is JSON: loading, start, text, then done or refused.",
    }
}


class Body(body.Body):
    """What is sent: nothing but what is named."""

    model_config = ConfigDict(extra="forbid", strict=False, use_attribute_docstrings=True)


class ForSpeaker(Body):
    """Somebody who can talk."""

    speaker: Annotated[str, KEY]


class Rendering(ForSpeaker):
    """A conversation to be shown as the model reads it."""

    messages: Messages


class Asking(Rendering):
    """A conversation to be answered."""

    settings: Json = {}
    """temperature, top_p, top_k, max_tokens, repetition_penalty, seed, stop, long."""


class Stopping(Body):
    """An answer, by the id its start told."""

    id: Annotated[str, Field(max_length=100)]


class Unloading(Body):
    """One set of weights, or all."""

    weights: Annotated[str, Field(max_length=4000)] | None = None


class Rating(Body):
    """What somebody thinks of an answer."""

    kind: Literal["good", "bad", "prefer", "edit"]
    messages: Messages
    answer: Text
    """The answer that is good, bad, preferred, or was edited."""
    other: Text | None = None
    """With prefer: the worse answer. With edit: what it should have been."""


class Running:
    """The pool of this server, and the answers that are being made, by the id clients stop them by."""

    def __init__(self, home: Path) -> None:
        self.pool = Pool(home)
        self.answers: dict[str, Answering] = {}


def _running(request: Request) -> Running:
    running: Running = request.app.state.chat
    return running


InChat = Annotated[Running, Depends(_running)]


@router.get("/speakers", response_model=ChatSpeakers)
def speakers(here: InHere) -> Json:
    """Everybody who can be talked to: runs with their checkpoints, newest first, then models."""
    return {"speakers": list_speakers(here.home)}


@router.get("/state", response_model=ChatState)
def state(here: InHere, chat: InChat) -> Json:
    """What lies in memory, whether a training goes first, and the settings of an answer with their bounds."""
    return {"loaded": chat.pool.loaded(), "note": note_on_training(here.home), "settings": _settings()}


@router.post("/load", response_model=ChatLoaded)
def load(asked: ForSpeaker, here: InHere, chat: InChat) -> Json:
    """Load a model before it is asked; answers when it is there."""
    speaker = _speaker(here, asked.speaker)
    worker = chat.pool.load(speaker)
    return {"speaker": speaker.key, "title": speaker.title, **worker.facts[speaker.key]}


@router.post("/unload", response_model=ChatUnloaded)
def unload(asked: Unloading, chat: InChat) -> Json:
    """Free memory now; it would be freed after some idle minutes anyway."""
    return {"unloaded": chat.pool.unload(asked.weights)}


@router.post("/render", response_model=ChatRendered)
def render(asked: Rendering, here: InHere, chat: InChat) -> Json:
    """A conversation as the model reads it: text and tokens."""
    return chat.pool.render(_speaker(here, asked.speaker), asked.messages)


@router.post("/answer", response_class=StreamingResponse, responses=STREAM)
async def answer(asked: Asking, here: InHere, chat: InChat) -> StreamingResponse:
    """An answer as it comes. A client that goes away ends it at once."""
    speaker = await asyncio.to_thread(_speaker, here, asked.speaker)
    settings_of(asked.settings)
    turns_of(asked.messages)
    return StreamingResponse(_events(chat, speaker, asked), media_type="text/event-stream")


@router.post("/stop", response_model=ChatStopped)
def stop(asked: Stopping, chat: InChat) -> Json:
    """End an answer at its next token; what was said so far is told in its last event."""
    found = chat.answers.get(asked.id)
    if found is not None:
        found.stop()
    return {"stopped": found is not None}


@router.post("/feedback", response_model=ChatFeedback, status_code=201)
def rate(asked: Rating, here: InHere) -> Json:
    """Keep what somebody thinks of an answer, as a row of the data folder that a job can train on."""
    home, turns = here.home, asked.messages
    if asked.kind in ("good", "bad"):
        saved = [feedback.rate(home, turns, asked.answer, good=asked.kind == "good")]
    elif asked.other is None:
        text = "other is missing: the worse answer with prefer, the better text with edit."
        raise refuse("other_missing", text, field="other")
    elif asked.kind == "prefer":
        saved = [feedback.prefer(home, turns, asked.answer, asked.other)]
    else:
        saved = feedback.correct(home, turns, asked.answer, asked.other)
    return {"saved": [one.to_json() for one in saved]}


async def _events(chat: Running, speaker: Speaker, asked: Asking) -> AsyncIterator[bytes]:
    """The stream of one answer."""
    yield _sse({"event": "loading", "title": speaker.title})
    answering = Answering(chat.pool, speaker, asked.messages, asked.settings)
    try:
        await answering.begin()
    except FactoryError as problem:
        yield _sse({"event": "refused", "findings": [one.to_json() for one in problem.findings]})
        return
    id = secrets.token_urlsafe(12)
    chat.answers[id] = answering
    try:
        async with contextlib.aclosing(answering.events()) as events:
            async for event in events:
                yield _sse({**event, "id": id} if event["event"] == "start" else event)
    finally:
        chat.answers.pop(id, None)


def _sse(event: Json) -> bytes:
    return b"data: %s\n\n" % orjson.dumps(event)


def _speaker(here: Here, key: str) -> Speaker:
    """The speaker of a key; folders outside of what the operator allows are refused. Raises FactoryError."""
    if key.startswith("model:"):
        _inside(here, key.removeprefix("model:"))
    speaker = by_key(here.home, key)
    if key.startswith("model:"):
        _inside(here, speaker.name)
    return speaker


def _inside(here: Here, name: str) -> None:
    path = user_path(name)
    if not path.exists() and not path.is_absolute() and ".." not in path.parts:
        return  # an embedded model or a hub id
    place = path.resolve()
    if not any(place.is_relative_to(root.resolve()) for root in (here.home, *here.settings.allow)):
        text = f"{name[:200]!r} is outside of the home, and the board reads models there or in a folder of --allow-dir."
        raise FactoryError(Finding("path_outside", text, field="speaker", value=name[:200]))


def _settings() -> list[Json]:
    """The settings of an answer, as a form needs them."""
    texts, schema = field_help(Settings), Settings.model_json_schema()["properties"]
    made = []
    for name, text in texts.items():
        node = next((one for one in schema[name].get("anyOf", []) if one.get("type") != "null"), schema[name])
        kept = {
            key: value
            for key, value in node.items()
            if key in ("type", "minimum", "maximum", "exclusiveMinimum")
        }
        made.append(
            {"name": name, "help": " ".join(text.split()), "default": schema[name].get("default"), **kept}
        )
        made[-1]["else"] = FALLBACK.get(name)
    return made
