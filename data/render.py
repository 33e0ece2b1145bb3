"""A row and a voice (template, special tokens) to the exact pieces of text that training sees, each learnt or not.

The mask is made by construction: the trained pieces are cut out while the text is put together, never searched
for in it. Per template and pattern of roles the text around the turns is found once, from renderings with
placeholders and their prefixes; every row is then compared with the template's own rendering, and a row that
differs (a template that trims, splits or drops what it is given) is cut by rendering its own prefixes.
`data.tokens` turns the pieces into ids; preview and trainer read the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from data.cut import Pieces, exactly, joined, placeholder
from data.errors import refuse
from data.pattern import Plan, make_plan, parts_of, prove
from data.rows import Row, Turn, Unusable, says_something, shape_of
from data.template import Template, for_template, template_names
from data.voice import Voice

PROOF_AFTER = 64
"""A plan is put to the proof when so many rows of its pattern came out as it said."""
CHECK_EVERY = 256
"""Of the rows of a proven plan every so many is still rendered and compared."""


class Renderer:
    """Rows to pieces for one voice. `notes` counts what is worth telling (reasoning dropped, double BOS, ...)."""

    def __init__(self, voice: Voice, train_on: str = "assistant", wrap: str | None = None) -> None:
        self.voice, self._train_on, self._wrap = voice, train_on, wrap
        self._template = Template(voice.template, voice.specials) if voice.template else None
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], Plan] = {}
        self._ready: dict[tuple[str, ...], Plan] = {}
        self.notes: Counter[str] = Counter()

    def quick(self, row: Row) -> tuple[list[str], str] | None:
        """(texts, mask as 0s and 1s) of an ordinary conversation whose plan is proven; None for all other rows.

        The same as `sequences`, for the rows that make up nearly all of most files.
        """
        turns = row.get("messages")
        if turns is None or len(row) > 1:
            return None
        plan = self._ready.get(tuple([turn["role"] for turn in turns]))
        if plan is None:
            return None
        contents = []
        for turn in turns:
            content = turn["content"]
            if len(turn) > 2 or not content.strip() or "</think>" in content:
                return None
            contents.append(content)
        plan.seen += 1
        return (plan.texts(contents), plan.learnt) if plan.seen % CHECK_EVERY else None

    def sequences(self, row: Row) -> list[Pieces]:
        """The token sequences of a row, as pieces: one for most shapes, chosen and rejected for a preference.

        Raises Unusable when the row cannot be rendered, FactoryError when the voice lacks a template.
        """
        shape = shape_of(row)
        if shape == "messages":
            return [self._conversation(row["messages"], row.get("tools"), None)]
        if shape == "text":
            return [self._finish([(_ended(row["text"], self.voice.eos), True)])]
        if shape == "preference":
            return [self._answered(row, row["prompt"], row[side]) for side in ("chosen", "rejected")]
        if shape == "prompt":
            return [self._asked(row)]
        return [self._answered(row, row["prompt"], row["completion"])]

    def _answered(self, row: Row, prompt: Any, answer: Any) -> Pieces:
        """Prompt and answer; only the answer is learnt."""
        if isinstance(prompt, str) and isinstance(answer, str):
            if not self._wraps(row):
                pieces = [(prompt, self._train_on == "all"), (_ended(answer, self.voice.eos), True)]
                return self._finish(pieces)
        asked, answered = as_turns(prompt, "user"), as_turns(answer, "assistant")
        return self._conversation([*asked, *answered], row.get("tools"), len(asked))

    def _wraps(self, row: Row) -> bool:
        """Whether plain texts become turns: as asked, else for pairs and labels where there is a template."""
        if self._wrap is not None:
            return self._wrap == "chat"
        return shape_of(row) != "completion" and self._template is not None

    def _asked(self, row: Row) -> Pieces:
        prompt = row["prompt"]
        if isinstance(prompt, str) and not self._wraps(row):
            return self._finish([(prompt, False)], whole=False)
        turns = for_template(as_turns(prompt, "user"))
        return self._finish(
            [(self._need_template().render(turns, row.get("tools"), True), False)], whole=False
        )

    def _need_template(self) -> Template:
        if self._template is None:
            raise refuse(
                "template_missing",
                "The model has no chat template, and the data holds conversations: choose one with model.template "
                f"({', '.join(template_names())}, or a .jinja file).",
                field="model.template",
                fix={"model.template": "chatml"},
            )
        return self._template

    def _conversation(self, turns: Sequence[Turn], tools: Any, answer_from: int | None) -> Pieces:
        template = self._need_template()
        learnt = self._learnt(turns, answer_from)
        turns = for_template(turns)
        if self._train_on == "all" and answer_from is None:
            return self._finish([(template.render(turns, tools), True)])
        if not any(learnt):
            raise Unusable("no_answer")
        if tools is None and all([len(turn) == 2 for turn in turns]):
            pieces = self._by_plan(template, turns, learnt)
        else:
            pieces = exactly(template, turns, tools, learnt)
            self._note_tools(turns, tools, pieces)
        self._note_reasoning(turns, pieces)
        return self._finish(pieces)

    def _learnt(self, turns: Sequence[Turn], answer_from: int | None) -> list[bool]:
        learnt = [
            turn["role"] == "assistant" and (len(turn) == 2 or turn.get("weight") != 0) for turn in turns
        ]
        for at, turn in enumerate(turns):
            if learnt[at] and not says_something(turn):
                learnt[at] = False
        if answer_from is not None:
            learnt = [here and at >= answer_from for at, here in enumerate(learnt)]
        if self._train_on == "last_assistant" and any(learnt):
            last = len(learnt) - 1 - learnt[::-1].index(True)
            learnt = [at == last for at in range(len(learnt))]
        return learnt

    def _by_plan(self, template: Template, turns: Sequence[Turn], learnt: list[bool]) -> Pieces:
        """Pieces of a row of plain turns: filled into the plan of its pattern, compared with the template's own."""
        key = (tuple([turn["role"] for turn in turns]), tuple(learnt))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = make_plan(template, *key)
        contents = [turn["content"] for turn in turns]
        plan.seen += 1
        if plan.proven and plan.seen % CHECK_EVERY:
            return plan.fill(contents)
        exact = exactly(template, turns, None, learnt, plan.fill(contents) if plan.pieces else None)
        if plan.proven is None and plan.seen == PROOF_AFTER:
            prove(template, plan, key)
            self._make_ready(plan, key)
        elif plan.proven and plan.fill(contents) != exact:
            plan.proven = False
            self._ready.pop(key[0], None)
            self.notes["template_varies"] += 1
        return exact

    def _make_ready(self, plan: Plan, key: tuple[tuple[str, ...], tuple[bool, ...]]) -> None:
        """Offer a proven plan to `quick` when it is the usual one of its roles, its first and last words settled."""
        roles, learnt = key
        usual = self._learnt([{"role": role, "content": "x"} for role in roles], None)
        if not plan.proven or list(learnt) != usual or self._train_on == "all":
            return
        contents = [placeholder(number) for number in range(len(roles))]
        finished = self._finish(plan.fill(contents))
        self.notes.clear()
        literal = type(plan.pieces[0][0][0]) is str and type(plan.pieces[-1][0][-1]) is str
        if literal and [text for text, _ in finished][1:] == plan.texts(contents)[1:]:
            pieces = tuple((parts_of(text), here) for text, here in finished)
            self._ready[roles] = Plan(pieces, proven=True, strips=plan.strips, learnt=plan.learnt)

    def _note_tools(self, turns: Sequence[Turn], tools: Any, pieces: Pieces) -> None:
        """Count rows whose tools or tool calls the template does not show."""
        names = [call["function"]["name"] for turn in turns for call in turn.get("tool_calls") or ()]
        names += [tool.get("function", tool).get("name", "") for tool in tools or ()]
        text = "".join([piece for piece, _ in pieces]) if names else ""
        if any(str(name) not in text for name in names):
            self.notes["tools_dropped"] += 1

    def _note_reasoning(self, turns: Sequence[Turn], pieces: Pieces) -> None:
        """Count rows whose reasoning the template leaves out of earlier turns."""
        thoughts = [
            _thought(turn)
            for turn in turns
            if turn["role"] == "assistant" and (len(turn) > 2 or "</think>" in turn["content"])
        ]
        if any(thoughts):
            text = "".join([piece for piece, _ in pieces])
            if any(thought and thought not in text for thought in thoughts):
                self.notes["reasoning_dropped"] += 1

    def _finish(self, pieces: Pieces, whole: bool = True) -> Pieces:
        """Exactly one BOS where the model has one, and an end to learn after the last answer."""
        voice = self.voice
        pieces = joined(pieces)
        if voice.bos:
            first, learnt = pieces[0]
            if first.startswith(voice.bos):
                while first.startswith(voice.bos + voice.bos):
                    first = first[len(voice.bos) :]
                    self.notes["double_bos"] += 1
                pieces[0] = (first, learnt)
            elif voice.adds_bos:
                pieces[0] = (voice.bos + first, learnt)
        if whole and voice.eos and pieces[-1][1] and not self._ends(pieces[-1][0]):
            self.notes["turn_end_missing"] += 1
            pieces[-1] = (pieces[-1][0] + voice.eos, True)
        return pieces

    def _ends(self, text: str) -> bool:
        bare = text.rstrip()
        return bare.endswith(self.voice.marks) if self.voice.marks else bool(self.voice.eos) and bare.endswith(
            self.voice.eos or ""
        )  # fmt: skip


def as_turns(value: Any, role: str) -> list[Turn]:
    """A text as one turn of `role`; turns as they are."""
    return [{"role": role, "content": value}] if isinstance(value, str) else value


def _ended(text: str, eos: str | None) -> str:
    """The text with the end-of-text token once behind it."""
    return text if eos is None or text.endswith(eos) else text + eos


def _thought(turn: Turn) -> str:
    if turn.get("reasoning_content"):
        return str(turn["reasoning_content"]).strip()
    before, closed, _ = turn["content"].partition("</think>")
    return before.replace("<think>", "").strip() if closed else ""
