"""How an answer is drawn, and what a conversation may be. Bounds, defaults and help stand here and nowhere else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from core.job.base import Spec, unit
from core.job.schema import allowed
from data.errors import FactoryError, Finding

MOST_TEXT = 1 << 20
"""Longest text of one turn, characters."""


class Turn(Spec):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[str, Field(max_length=MOST_TEXT)]


class Settings(Spec):
    """How an answer is drawn. What is left out is as the model's own generation_config.json says."""

    temperature: float | None = Field(None, ge=0.0, le=5.0)
    """0 always takes the likeliest token; higher is more daring. The model's own, else 0.7."""
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    """Draw from the likeliest tokens that have this probability together (arXiv 1904.09751). The model's own, else
    0.95."""
    top_k: int | None = Field(None, ge=0, le=100_000)
    """Draw from so many likeliest tokens; 0 for all. The model's own, else 50 (transformers' default)."""
    max_tokens: int = Field(512, ge=1, le=131_072, json_schema_extra=unit("tokens"))
    """Longest answer."""
    repetition_penalty: float | None = Field(None, ge=0.5, le=3.0)
    """Above 1 makes tokens that were said before less likely (arXiv 1909.05858). The model's own, else 1."""
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    """The same conversation, settings and seed give the same answer. None draws a seed, which is told."""
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field([], max_length=8)
    """Texts at which the answer ends; they are not part of it."""
    long: Literal["cut", "refuse"] = "cut"
    """What becomes of a conversation that is longer than the model's context: its oldest turns are left out, or it is
    refused."""


FALLBACK = {"temperature": 0.7, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.0}
"""Where neither the user nor the model says: llama.cpp's and transformers' usual values, a little calmer."""


def settings_of(values: dict[str, Any]) -> Settings:
    """Checked settings from plain values. Raises FactoryError naming everything that is wrong."""
    try:
        return Settings.model_validate(values)
    except ValidationError as problem:
        raise _refusal(problem, values) from None


def turns_of(messages: Any) -> list[dict[str, str]]:
    """A checked conversation as plain turns. Raises FactoryError naming the turn that is wrong."""
    if not isinstance(messages, list) or not messages:
        raise FactoryError(
            Finding("messages_missing", "A conversation needs at least one turn.", field="messages")
        )
    try:
        return [Turn.model_validate(one).model_dump() for one in messages]
    except ValidationError as problem:
        raise _refusal(problem, {}, "messages") from None


def _refusal(problem: ValidationError, values: dict[str, Any], prefix: str = "") -> FactoryError:
    findings = []
    nodes = (Turn if prefix else Settings).model_json_schema()["properties"]
    for detail in problem.errors():
        name = ".".join([*([prefix] if prefix else []), *(str(part) for part in detail["loc"])])
        node = nodes.get(str(detail["loc"][0])) if detail["loc"] else None
        if detail["type"] == "extra_forbidden":
            known = ", ".join(Settings.model_fields)
            text = f"There is no setting {name!r}; there are {known}."
        elif node is not None:
            text = f"{name} must be {allowed(node)}, not {repr(detail['input'])[:80]}."
        else:
            text = f"{name or 'A turn'} must have a role and a content, not be {repr(detail['input'])[:80]}."
        findings.append(Finding("setting_invalid", text, field=name, value=str(detail["input"])[:200]))
    return FactoryError(findings)
