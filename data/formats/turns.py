"""Turns of a conversation in any dialect, made canonical. Knows nothing of columns."""

from __future__ import annotations

import json
from typing import Any

from data.rows import ROLE_WORDS, ROLES, Turn, Unusable

ROLE_KEYS = ("role", "from", "speaker", "author", "sender")
TEXT_KEYS = ("content", "value", "text", "utterance", "message")
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_CANONICAL = frozenset(ROLES)
_PLAIN_KEYS = frozenset(("role", "content"))


def looks_like_turns(value: Any) -> bool:
    """True for a list of {role, text} objects, or an object of such columns ({"from": [..], "value": [..]})."""
    if isinstance(value, dict):
        role, text = _key(value, ROLE_KEYS), _key(value, TEXT_KEYS)
        return (
            role is not None
            and text is not None
            and isinstance(value[role], list)
            and isinstance(value[text], list)
            and len(value[role]) == len(value[text]) > 0
        )
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(turn, dict) and _key(turn, ROLE_KEYS) is not None for turn in value[:6]) and any(
        _key(turn, TEXT_KEYS) is not None or "tool_calls" in turn for turn in value[:6]
    )


def looks_like_turn(value: Any) -> bool:
    """True for one {role, text} object."""
    return isinstance(value, dict) and looks_like_turns([value])


def _key(turn: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if key in turn), None)


def read_turns(value: Any) -> list[Turn]:
    """Canonical turns from any dialect. Raises Unusable for an unknown role, images, or what is no list of turns."""
    if isinstance(value, dict):
        value = _transposed(value)
    if not isinstance(value, list):
        raise Unusable("wrong_type", f"turns: {value!r}"[:160])
    turns: list[Turn] = []
    for turn in value:
        # The common case first: nothing to rename, nothing to parse.
        if (
            type(turn) is dict
            and turn.keys() == _PLAIN_KEYS
            and turn["role"] in _CANONICAL
            and type(turn["content"]) is str
        ):
            turns.append(turn)
        else:
            turns.append(read_turn(turn))
    return turns


def _transposed(value: dict[str, Any]) -> list[dict[str, Any]]:
    if not looks_like_turns(value):
        return [value]
    names = [name for name, cells in value.items() if isinstance(cells, list)]
    return [
        dict(zip(names, cells, strict=False)) for cells in zip(*(value[name] for name in names), strict=False)
    ]


def read_turn(turn: Any) -> Turn:
    """One canonical turn. Raises Unusable as `read_turns` does."""
    if not isinstance(turn, dict):
        raise Unusable("wrong_type", f"turn: {turn!r}"[:160])
    role_key, text_key = _key(turn, ROLE_KEYS), _key(turn, TEXT_KEYS)
    word = turn.get(role_key) if role_key else None
    role = ROLE_WORDS.get(word.strip().lower()) if isinstance(word, str) else None
    if role is None:
        raise Unusable("unknown_role", str(word)[:80])
    content = _content(turn.get(text_key) if text_key else None)
    if role == "call":
        return {"role": "assistant", "content": "", "tool_calls": _called(content)}
    made: Turn = {"role": role, "content": content}
    reasoning = _key(turn, REASONING_KEYS)
    if reasoning is not None and turn[reasoning]:
        made["reasoning_content"] = str(turn[reasoning])
    if turn.get("tool_calls"):
        made["tool_calls"] = [_tool_call(call) for call in turn["tool_calls"]]
    for key in ("tool_call_id", "name"):
        if isinstance(turn.get(key), str) and turn[key]:
            made[key] = turn[key]
    if turn.get("weight") is not None:
        made["weight"] = float(turn["weight"])
    return made


def _content(value: Any) -> str:
    """Text of a turn: parts joined, null as empty. Raises Unusable('image') for parts that are no text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, bool)):
        return json.dumps(value)
    if isinstance(value, dict):
        value = [value]
    texts = []
    for part in value:
        if isinstance(part, str):
            texts.append(part)
        elif (
            isinstance(part, dict)
            and part.get("type", "text") == "text"
            and isinstance(part.get("text"), str)
        ):
            texts.append(part["text"])
        else:
            kind = part.get("type", "object") if isinstance(part, dict) else type(part).__name__
            raise Unusable("image", f"a part of type {kind}")
    return "".join(texts)


def _called(text: str) -> list[dict[str, Any]]:
    """The calls in a turn whose text is JSON: one {name, arguments} or a list of them."""
    try:
        calls = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise Unusable("wrong_type", f"tool call: {text}"[:160]) from None
    return [_tool_call(call) for call in (calls if isinstance(calls, list) else [calls])]


def _tool_call(call: Any) -> dict[str, Any]:
    """{id?, type, function: {name, arguments as JSON text}}; arguments are never looked into."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Unusable("wrong_type", f"tool call: {call!r}"[:160])
    arguments = function.get("arguments", function.get("parameters"))
    if not isinstance(arguments, str):
        arguments = json.dumps(_without_nulls(arguments or {}), ensure_ascii=False)
    made: dict[str, Any] = {
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    return {"id": call["id"], **made} if isinstance(call.get("id"), str) else made


def _without_nulls(arguments: Any) -> Any:
    """Arguments without keys that are null: tables fill absent keys with null, and those are not the model's words."""
    if isinstance(arguments, dict):
        return {key: _without_nulls(value) for key, value in arguments.items() if value is not None}
    return arguments


def read_tools(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a row as a list, from a list or JSON text; None when there are none. Raises Unusable."""
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            raise Unusable("bad_tools", value[:120]) from None
    if isinstance(value, dict):
        value = [value]
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise Unusable("bad_tools", repr(value)[:120])
    return [_without_nulls(tool) for tool in value]
