"""A chat template in the words of Ollama (Go templates), found by asking the real one, and proven by reading it back.

The jinja template is rendered for chats with marks in them; what stands between the marks is what each role needs
before and after its words. Only a small part of Go's language is written, and `rendered` reads exactly that part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM, USER, ANSWER, AGAIN = "@@system@@", "@@user@@", "@@answer@@", "@@again@@"
Chat = Sequence[dict[str, str]]


class Untranslatable(Exception):
    """A template whose text depends on more than who spoke before."""


@dataclass(frozen=True)
class Pieces:
    """What stands before each turn, by who speaks and who spoke last, and what asks for an answer."""

    first_user: str
    first_system: str | None
    """None where the template refuses a system prompt."""
    system_user: str
    user_answer: str
    answer_user: str
    ask: str
    default_system: str | None
    """The system prompt that the template puts in when there is none."""


def pieces_of(tokenizer: Any, *, without: str = "") -> Pieces:
    """What the tokenizer's template writes around the turns. `without` is a begin mark that others put in.

    Raises Untranslatable when the marks do not come back once each and in order.
    """

    def between(*turns: tuple[str, str]) -> list[str]:
        chat = [{"role": role, "content": mark} for role, mark in turns]
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        found = re.split("|".join(re.escape(mark) for _, mark in turns), text.removeprefix(without))
        order = [mark for mark in re.findall("@@[a-z]+@@", text)]
        if order != [mark for _, mark in turns]:
            raise Untranslatable("it repeats or leaves out a turn")
        return found

    first_user, user_answer, answer_user, ask = between(
        ("user", USER), ("assistant", ANSWER), ("user", AGAIN)
    )
    try:
        system = between(("system", SYSTEM), ("user", USER))
    except Untranslatable:
        raise
    except Exception:  # a template that knows no system prompt says so in words of its own
        return Pieces(first_user, None, "", user_answer, answer_user, ask, None)
    default = _default_system(first_user, system)
    return Pieces(first_user, system[0], system[1], user_answer, answer_user, ask, default)


def _default_system(first_user: str, system: list[str]) -> str | None:
    before, behind = system[0], system[1]
    fits = before and first_user.startswith(before) and first_user.endswith(behind)
    if fits and len(first_user) > len(before) + len(behind):
        return first_user[len(before) : len(first_user) - len(behind)]
    return None


def go_template(pieces: Pieces, end_of_turn: str | None) -> str:
    """The template in Go's words: a block for each role where that says the same, else by who spoke last."""
    blocks = _by_role(pieces, end_of_turn)
    return blocks if blocks is not None else _by_last(pieces)


def _by_role(pieces: Pieces, end_of_turn: str | None) -> str | None:
    """A block per role: what it begins and what it ends with, no matter who spoke before. None when that is not so."""
    head = re.match(rf"\s*{re.escape(end_of_turn)}\s*" if end_of_turn else r"\s*", pieces.answer_user)
    cut = head.end() if head else 0
    answer_end, user_begin = pieces.answer_user[:cut], pieces.answer_user[cut:]
    shared = os.path.commonprefix([pieces.user_answer, pieces.ask])
    if pieces.user_answer != pieces.ask or not user_begin:
        return None
    alone = pieces.first_user if pieces.default_system is None else user_begin
    if alone != user_begin or not pieces.system_user.endswith(user_begin):
        return None
    # The user's block ends where the answer's begins; both parts always follow each other.
    user_end = shared[: _same_end(shared, answer_end)]
    system_end = pieces.system_user.removesuffix(user_begin)
    answer_begin = shared[len(user_end) :]
    roles = [("system", pieces.first_system or "", system_end)] if pieces.first_system is not None else []
    roles += [("user", user_begin, user_end), ("assistant", answer_begin, answer_end)]
    text = "{{ range .Messages }}"
    for place, (role, before, behind) in enumerate(roles):
        word = "if" if place == 0 else "else if"
        text += f'{{{{ {word} eq .Role "{role}" }}}}{_quoted(before)}{{{{ .Content }}}}{_quoted(behind)}'
    return f"{text}{{{{ end }}}}{{{{ end }}}}{_quoted(answer_begin)}"


def _same_end(shared: str, end: str) -> int:
    """How much of what follows a user's words ends the turn: as much as ends an answer, or nothing."""
    return len(end) if end and shared.startswith(end) else 0


def _by_last(pieces: Pieces) -> str:
    first = pieces.first_user if pieces.default_system is None else pieces.first_system + pieces.system_user  # type: ignore[operator]
    user = (
        f'{{{{ if eq $last "system" }}}}{_quoted(pieces.system_user)}'
        f'{{{{ else if eq $last "assistant" }}}}{_quoted(pieces.answer_user)}'
        f"{{{{ else }}}}{_quoted(first)}{{{{ end }}}}"
    )
    return (
        '{{ $last := "" }}{{ range .Messages }}'
        f'{{{{ if eq .Role "system" }}}}{_quoted(pieces.first_system or "")}{{{{ .Content }}}}'
        f'{{{{ else if eq .Role "user" }}}}{user}{{{{ .Content }}}}'
        f'{{{{ else if eq .Role "assistant" }}}}{_quoted(pieces.user_answer)}{{{{ .Content }}}}{{{{ end }}}}'
        f"{{{{ $last = .Role }}}}{{{{ end }}}}{_quoted(pieces.ask)}"
    )


def _quoted(text: str) -> str:
    """Text that Go must not read as its own: only two opening braces are."""
    if '"""' in text:
        raise Untranslatable("it holds three quotes in a row, which end a Modelfile's text")
    return text.replace("{{", '{{ "{{" }}')


_WORDS = re.compile(r"\{\{ (.*?) \}\}", re.DOTALL)
_TEST = re.compile(r'(?:else )?if eq (\.Role|\$last) "([a-z]+)"')


def rendered(template: str, chat: Chat) -> str:
    """What Ollama writes for a chat by a template that `go_template` made. Raises Untranslatable for anything else."""
    parts = _WORDS.split(template)  # text, word, text, word, ..., text
    tokens = [("text" if place % 2 == 0 else "word", part) for place, part in enumerate(parts)]
    state = {"$last": ""}
    before, loop, behind = _split_loop(tokens)
    out = _run(before, {}, state)
    for turn in chat:
        out += _run(loop, turn, state)
    return out + _run(behind, {}, state)


Tokens = list[tuple[str, str]]


def _split_loop(tokens: Tokens) -> tuple[Tokens, Tokens, Tokens]:
    start = tokens.index(("word", "range .Messages"))
    depth, place = 1, start
    while depth:
        place += 1
        kind, text = tokens[place]
        depth += (kind == "word") * (text.startswith("if ") - (text == "end"))
    return tokens[:start], tokens[start + 1 : place], tokens[place + 1 :]


def _run(tokens: Tokens, turn: dict[str, str], state: dict[str, str]) -> str:
    out: list[str] = []
    branches: list[tuple[bool, bool]] = []  # (this branch is taken, one of these branches was taken)
    for kind, text in tokens:
        live = all(taken for taken, _ in branches)
        if kind == "text":
            out += [text] if live else []
        elif text == "end":
            branches.pop()
        elif text == "else":
            _, done = branches.pop()
            branches.append((not done, True))
        elif test := _TEST.fullmatch(text):
            value = turn.get("role", "") if test[1] == ".Role" else state["$last"]
            done = branches.pop()[1] if text.startswith("else") else False
            branches.append((not done and value == test[2], done or value == test[2]))
        elif live:
            out.append(_word(text, turn, state))
    return "".join(out)


def _word(text: str, turn: dict[str, str], state: dict[str, str]) -> str:
    if text == ".Content":
        return turn["content"]
    if text == '"{{"':
        return "{{"
    if text == "$last = .Role":
        state["$last"] = turn["role"]
        return ""
    if text == '$last := ""':
        return ""
    raise Untranslatable(f"the word {text!r} is not one of ours")
