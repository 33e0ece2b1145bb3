"""What the REST API answers about talking to models."""

from __future__ import annotations

from typing import Any, Literal

from webui.api.answers import Answer, Json


class ChatSpeaker(Answer):
    """Somebody who can be talked to."""

    key: str
    title: str
    kind: Literal["run", "model"]
    run: str | None
    finished: bool
    """Whether there is a finished model; else the newest checkpoint is meant."""
    checkpoints: list[int]
    base: str | None
    """Key of the model it came from."""
    base_title: str | None
    about: str


class ChatSpeakers(Answer):
    """Everybody who can be talked to."""

    speakers: list[ChatSpeaker]


class ChatState(Answer):
    """What lies in memory, and the settings of an answer."""

    loaded: list[Json]
    """Per set of weights: weights, speakers, memory (bytes), busy, unloads_in (seconds), device, dtype, parameters."""
    note: str | None
    """A sentence when a training goes first."""
    settings: list[Json]
    """Name, help, type, minimum, maximum, default, and what holds where neither user nor model says (else)."""


class ChatLoaded(Answer):
    """A model that can answer now."""

    speaker: str
    title: str
    seconds: float
    context: int | None
    template: bool
    device: str
    dtype: str
    parameters: int


class ChatUnloaded(Answer):
    """How many sets of weights were freed."""

    unloaded: int


class ChatRendered(Answer):
    """A conversation as the model reads it."""

    text: str
    count: int
    """Tokens."""
    tokens: list[list[Any]]
    """Text of each token, and whether it is a special one."""


class ChatStopped(Answer):
    """Whether there was an answer to stop."""

    stopped: bool


class ChatFeedback(Answer):
    """Where the rows went: file, path, rows that are there now."""

    saved: list[Json]
