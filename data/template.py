"""Chat templates, rendered as transformers renders them, in a sandbox.

The environment is transformers' own (`transformers/utils/chat_template_utils.py`, 5.17): immutable sandbox,
trimmed blocks, loop controls, `{% generation %}` marks, `raise_exception`, `strftime_now`, plain `tojson`.
Rendering happens in the parsing child, whose CPU time and memory are limited (data.child).
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
from jinja2.sandbox import ImmutableSandboxedEnvironment

from data.errors import FactoryError, refuse
from data.rows import Turn, Unusable

MAX_SOURCE = 256 * 2**10
"""Longest template, characters."""
MAX_SECONDS = 2
"""Longest time for one rendering."""
MAX_TEXT = 64 * 2**20
"""Longest rendered conversation, characters."""
FOLDER = Path(__file__).resolve().parent.parent / "templates" / "chat"

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


class _Generation(jinja2.ext.Extension):
    """`{% generation %} ... {% endgeneration %}`: marks what the assistant says, when marks are asked for."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: jinja2.runtime.Macro) -> str:
        said = caller()
        return f"{_OPEN}{said}{_CLOSE}" if self.environment.globals["marking"] else said


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise FactoryError when what is inside takes longer than MAX_SECONDS. Only the main thread has such an alarm;
    rows are rendered in the main thread of a child (data.child)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_slow(*_: object) -> None:
    raise refuse(
        "template_too_slow",
        f"The chat template takes more than {MAX_SECONDS} seconds for one conversation: "
        "name another with model.template.",
        field="model.template",
    )


class Template:
    """A compiled chat template with its tokenizer's special tokens. Raises FactoryError when it does not compile."""

    def __init__(self, source: str, specials: Mapping[str, Any]) -> None:
        if len(source) > MAX_SOURCE:
            raise refuse(
                "template_too_long",
                f"The chat template has {len(source):,} characters, more than {MAX_SOURCE:,}: use a shorter one.",
                field="model.template",
            )
        self._environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        self._environment.filters["tojson"] = _tojson
        self._environment.globals.update(
            raise_exception=_raise, strftime_now=lambda form: datetime.now().strftime(form), marking=False
        )
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise refuse(
                "template_broken",
                f"The chat template does not compile ({str(error)[:200] or type(error).__name__}): "
                "name another with model.template.",
                field="model.template",
            ) from None
        self._specials = dict(specials)
        self._source = source
        self.marks = "generation %}" in source or "generation -%}" in source

    def provoking_texts(self) -> list[str]:
        """Texts that a template could treat in a way of its own: blanks around them, marks of reasoning and tools,
        and every literal that stands in the template, alone, in the middle, at the beginning and at the end."""
        tree = self._environment.parse(self._source)
        literals = {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
        words = [
            one
            for literal in sorted(literals)
            for one in (literal, f"a{literal}b", f"{literal}b", f"a{literal}")
        ]
        return [*_PROVOKING, *words]

    def render(
        self, turns: Sequence[Turn], tools: list[dict[str, Any]] | None = None, answer_next: bool = False
    ) -> str:
        """The text of a conversation. Raises Unusable('template_refused') in the template's own words."""
        try:
            with _time_limit():
                text = self._template.render(
                    messages=turns,
                    tools=tools,
                    documents=None,
                    add_generation_prompt=answer_next,
                    **self._specials,
                )
        except RecursionError:
            raise Unusable("template_refused", "it nests too deep") from None
        except (
            FactoryError,
            MemoryError,
        ):  # our own time limit and the child's memory limit have their own words
            raise
        except Exception as error:  # a template is a program: it can fail in every way Python can
            raise Unusable("template_refused", str(error)[:200] or type(error).__name__) from None
        if len(text) > MAX_TEXT:
            raise Unusable("template_refused", f"it made {len(text):,} characters")
        return text

    def render_marked(
        self, turns: Sequence[Turn], tools: list[dict[str, Any]] | None = None
    ) -> list[tuple[str, bool]] | None:
        """The same text in pieces: (text, inside a `{% generation %}` block); None when the row's own text holds the
        private characters that mark the blocks."""
        self._environment.globals["marking"] = True
        try:
            text = self.render(turns, tools)
        finally:
            self._environment.globals["marking"] = False
        pieces: list[tuple[str, bool]] = []
        rest = text
        if text.count(_OPEN) != text.count(_CLOSE):
            return None
        while rest:
            before, _, rest = rest.partition(_OPEN)
            said, _, rest = rest.partition(_CLOSE)
            pieces += [(before, False), (said, True)]
        return [piece for piece in pieces if piece[0]]


_PROVOKING = (
    "x", " x", "x ", "\n x \n", "", "<think>\nx\n</think>\n\ny", "</think>", "<tool_call>{}</tool_call>", "{{ x }}",
    "{% x %}", "<x>", "a\n\nb", "\\n", "'", '"', "&amp; <b>", "7", "True", "None", "[1]", "ß", "\u3000x\u3000",
    "<|im_end|>", "</s>",
)  # fmt: skip


def for_template(turns: Sequence[Turn]) -> list[Turn]:
    """Turns as templates expect them: tool arguments parsed from their JSON text, no keys of our own."""
    return [_for_template(turn) if len(turn) > 2 else turn for turn in turns]


def _for_template(turn: Turn) -> Turn:
    made = {key: value for key, value in turn.items() if key != "weight"}
    if "tool_calls" in made:
        made["tool_calls"] = [_parsed_call(call) for call in made["tool_calls"]]
    return made


def _parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        function["arguments"] = json.loads(function["arguments"])
    except (json.JSONDecodeError, RecursionError):
        raise Unusable("wrong_type", f"tool arguments: {function['arguments']}"[:160]) from None
    return {**call, "function": function}


def template_names() -> list[str]:
    """The names of the bundled templates."""
    return sorted(path.stem for path in FOLDER.glob("*.jinja"))


def load_template(name: str) -> str:
    """The text of a bundled template by name, or of a .jinja file. Raises FactoryError when there is none."""
    path = FOLDER / f"{name}.jinja" if "/" not in name and not name.endswith(".jinja") else Path(name)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        raise refuse(
            "template_missing",
            f"There is no chat template {name}: name one of {', '.join(template_names())}, or a .jinja file.",
            field="model.template",
            value=name,
        ) from None
    return source
