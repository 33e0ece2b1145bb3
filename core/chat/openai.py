"""The API that other programs speak, as plain data: what a request may ask, and what answers and refusals look like.

Why this stands before our own worker and not before `transformers serve` (5.17, tried): that one loads no adapter
folder, which most runs are; takes n, response_format and max_completion_tokens and does nothing with them; answers
prompts that are longer than the model can read; goes on when the client of a whole answer has gone; and fails to list
models where there is no hub cache. What is not served here is refused by name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.chat.settings import settings_of, turns_of
from data.errors import FactoryError, Finding

Json = dict[str, Any]

TAKEN = ("temperature", "top_p", "top_k", "max_tokens", "repetition_penalty", "seed")
"""Fields with our own name and meaning; top_k and repetition_penalty are extensions that vLLM has too."""
IGNORED = ("user", "metadata", "store", "safety_identifier", "service_tier", "prompt_cache_key")
"""Fields for the operator of a service, which change no answer."""
NOTHING: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields that are not served, and the values of them that ask for nothing; null asks for nothing in all of them."""
ROLES = {"developer": "system"}
FINISH = {"stop": "stop", "length": "length", "stopped": "stop"}
STATUS = {
    "chat_busy": 429,
    "memory_too_small": 503,
    "chat_ended": 503,
    "internal_error": 500,
    "out_of_memory": 503,
}
KINDS = {429: "rate_limit_error", 503: "server_error", 500: "server_error", 404: "not_found_error"}
CODES = {"prompt_too_long": "context_length_exceeded"}


@dataclass(frozen=True)
class Asked:
    """A request as the pool takes it."""

    messages: list[dict[str, str]]
    settings: Json
    stream: bool
    usage: bool
    """Whether a stream ends with how many tokens there were."""


def read(body: Any) -> Asked:
    """A request for a chat completion. Raises FactoryError naming every field that cannot be served."""
    if not isinstance(body, dict):
        raise FactoryError(Finding("bad_request", "The body must be a JSON object."))
    findings = [*_unserved(body), *_unknown(body)]
    for name in ("model", "messages"):
        if name not in body:
            findings.append(Finding("field_missing", f"{name} is missing.", field=name))
    if findings:
        raise FactoryError(findings)
    settings: Json = {name: body[name] for name in TAKEN if body.get(name) is not None}
    if (most := body.get("max_completion_tokens")) is not None:
        settings["max_tokens"] = most
    if (stop := body.get("stop")) is not None:
        settings["stop"] = [stop] if isinstance(stop, str) else stop
    settings["long"] = "refuse"
    options = body.get("stream_options") or {}
    settings_of(settings)
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return Asked(
        turns_of([_turn(one) for one in _list(body["messages"])]), settings, body.get("stream") is True, usage
    )


def _unserved(body: Json) -> list[Finding]:
    made = []
    for name, nothing in NOTHING.items():
        value = body.get(name)
        if value is not None and value not in nothing:
            text = f"{name} is not served here; leave it out."
            made.append(Finding("field_not_served", text, field=name, value=str(value)[:100]))
    return made


def _unknown(body: Json) -> list[Finding]:
    known = {
        *TAKEN,
        *IGNORED,
        *NOTHING,
        "model",
        "messages",
        "stop",
        "stream",
        "stream_options",
        "max_completion_tokens",
    }
    return [
        Finding(
            "field_unknown", f"{name[:60]} is no field of a chat completion; leave it out.", field=name[:60]
        )
        for name in body
        if name not in known
    ]


def _list(messages: Any) -> list[Any]:
    return messages if isinstance(messages, list) else []


def _turn(one: Any) -> Any:
    """A message in our shape: parts of text joined; what is no text is refused by its type."""
    if not isinstance(one, dict):
        return one
    role = ROLES.get(one.get("role", ""), one.get("role"))
    content = one.get("content")
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
        if other := next((kind for kind in kinds if kind != "text"), None):
            text = f"messages with {other} are not served here: only text is."
            raise FactoryError(Finding("content_not_served", text, field="messages", value=str(other)[:60]))
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return {"role": role, "content": content}


def new_id() -> str:
    """The id of one completion."""
    return f"chatcmpl-{secrets.token_hex(12)}"


def completion(id: str, model: str, done: Json) -> Json:
    """A whole answer, from the worker's last event."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": done["text"], "refusal": None},
        "logprobs": None,
        "finish_reason": FINISH[done["reason"]],
    }
    return {**_head(id, model, "chat.completion"), "choices": [choice], "usage": usage(done)}


def chunk(id: str, model: str, delta: Json, *, reason: str | None = None, usage: Json | None = None) -> Json:
    """One piece of a streamed answer."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason and FINISH[reason]}
    made = {**_head(id, model, "chat.completion.chunk"), "choices": [choice]}
    return made if usage is None else {**made, "usage": usage}


def last_chunk(id: str, model: str, done: Json) -> Json:
    """The piece behind the last, which only says how many tokens there were."""
    return {**_head(id, model, "chat.completion.chunk"), "choices": [], "usage": usage(done)}


def usage(done: Json) -> Json:
    """Tokens of an answer."""
    asked, said = done["prompt_tokens"], done["tokens"]
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def models(name: str, created: int) -> Json:
    """The list of models: the one that is served."""
    return {"object": "list", "data": [model(name, created)]}


def model(name: str, created: int) -> Json:
    """The served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "factory"}


def refusal(findings: tuple[Finding, ...] | list[Finding]) -> tuple[int, Json]:
    """The HTTP status and the body of a refusal; every sentence is in the message."""
    first = findings[0]
    status = STATUS.get(first.code, 400)
    return status, error(
        status, " ".join(one.message for one in findings), CODES.get(first.code, first.code), first.field
    )


def error(status: int, message: str, code: str | None, param: str | None = None) -> Json:
    """An error in the shape clients of this API know."""
    kind = KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _head(id: str, model: str, kind: str) -> Json:
    return {"id": id, "object": kind, "created": int(time.time()), "model": model, "system_fingerprint": None}
