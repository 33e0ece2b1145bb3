"""A conversation as the model will read it: rendered by its template, cut where it is longer than the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core.training.chat.weights import Loaded
from data.errors import refuse
from data.rows import Unusable

Turns = list[dict[str, Any]]
SHARE = 4
"""Where turns are left out, so much of the context (1/4) is kept for the answer, if it may be that long."""


@dataclass(frozen=True)
class Prompt:
    """What is fed to the model."""

    text: str
    ids: list[int]
    cut: int = 0
    """How many of the oldest turns were left out."""


def render(loaded: Loaded, turns: Turns) -> str:
    """The text of a conversation with the beginning of an answer. Raises FactoryError in the template's words."""
    if loaded.template is None:
        return "\n".join(turn["content"] for turn in turns)
    try:
        return loaded.template.render(turns, answer_next=turns[-1]["role"] != "assistant")
    except Unusable as problem:
        text = (
            f"The chat template of {loaded.speaker.title} refuses this conversation ({problem.text.rstrip('.')}); "
            "begin anew, or leave out the turn it names."
        )
        raise refuse("template_refused", text, value=[turn["role"] for turn in turns]) from None


def prompt(
    loaded: Loaded, turns: Turns, *, context: int | None, answer: int, long: Literal["cut", "refuse"]
) -> Prompt:
    """The tokens of a conversation, oldest turns left out where it does not fit.

    Raises FactoryError when the template refuses it, or what is left is still too long.
    """
    left = list(turns)
    while True:
        text = render(loaded, left)
        ids: list[int] = loaded.tokenizer(text, add_special_tokens=loaded.template is None)["input_ids"]
        if not ids:
            raise refuse("prompt_empty", "There is nothing to answer: the message is empty; write something.")
        cut = len(turns) - len(left)
        # A conversation that fits is never cut; one that is cut leaves room for an answer.
        room = 1 if not cut or context is None else min(answer, context // SHARE)
        if context is None or len(ids) + room <= context:
            return Prompt(text, ids, cut)
        shorter = _without_oldest(left) if long == "cut" else None
        if shorter is None:
            raise _too_long(loaded, len(ids), context)
        left = shorter


def _without_oldest(turns: Turns) -> Turns | None:
    """The conversation without its oldest question and what answered it; None when one question is left."""
    first = next((place for place, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    asked = [place for place, turn in enumerate(turns) if turn["role"] == "user" and place > first]
    return [*turns[:first], *turns[asked[0] :]] if asked else None


def _too_long(loaded: Loaded, count: int, context: int) -> Exception:
    text = (
        f"The conversation has {count:,} tokens and {loaded.speaker.title} reads at most {context:,}, the answer among "
        "them; shorten the message or begin anew."
    )
    return refuse("prompt_too_long", text, value=count, context=context)
