"""A row and a voice (template, special tokens) to the exact pieces of text that training sees, each learnt or not.

The mask is made by construction: the trained pieces are cut out while the text is put together, never searched
for in it. Per template and pattern of roles the text around the turns is found once, from renderings with
placeholders and their prefixes; every row is then compared with the template's own rendering, and a row that
differs (a template that trims, splits or drops what it is given) is cut by rendering its own prefixes.
`data.tokens` turns the pieces into ids; preview and trainer read the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from data.errors import refuse
from data.rows import Row, Turn, Unusable, says_something, shape_of
from data.template import Template, for_template, template_names

Piece = tuple[str, bool]
"""(text, learnt)"""
Pieces = list[Piece]


@dataclass(frozen=True)
class Voice:
    """What rendering must know of a tokenizer: its template, special tokens, and whether it adds a BOS by itself."""

    template: str | None
    bos: str | None
    eos: str | None
    adds_bos: bool
    specials: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    """All special tokens, to see whether a turn ends in one."""

    @classmethod
    def of(cls, tokenizer: Any) -> Voice:
        """The voice of a transformers tokenizer."""
        template = tokenizer.chat_template
        if isinstance(template, Mapping):
            template = template.get("default")
        bos, eos = tokenizer.bos_token, tokenizer.eos_token
        first = tokenizer("a").input_ids[:1]
        adds = bos is not None and first == [tokenizer.convert_tokens_to_ids(bos)]
        marks = tuple(dict.fromkeys([*tokenizer.all_special_tokens, *_added(tokenizer)]))
        return cls(template, bos, eos, adds, dict(tokenizer.special_tokens_map), marks)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON for the child."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Voice:
        """The inverse of `to_plain`."""
        return cls(**{**plain, "marks": tuple(plain["marks"])})


def _added(tokenizer: Any) -> list[str]:
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]


PROOF_AFTER = 64
"""A plan is put to the proof when so many rows of its pattern came out as it said."""
CHECK_EVERY = 256
"""Of the rows of a proven plan every so many is still rendered and compared."""


@dataclass
class _Plan:
    """Pieces for one pattern of roles: literals and turn numbers, with the mask.

    Until it is proven every row is rendered as well and compared; `proven` turns True when the template says the
    same for texts made to provoke it (Template.provoking_texts), and False when it does not.
    """

    pieces: tuple[tuple[tuple[str | int, ...], bool], ...]
    seen: int = 0
    proven: bool | None = None
    strips: bool = False
    learnt: str = ""

    def fill(self, contents: Sequence[str]) -> Pieces:
        """The pieces with the contents of the turns in their places."""
        return [(text, here == "1") for text, here in zip(self.texts(contents), self.learnt, strict=True)]

    def texts(self, contents: Sequence[str]) -> list[str]:
        """Only the texts of the pieces."""
        if self.strips:
            contents = [content.strip() for content in contents]
        return [
            "".join([part if type(part) is str else contents[part] for part in parts])  # type: ignore[index]
            for parts, _ in self.pieces
        ]


class Renderer:
    """Rows to pieces for one voice. `notes` counts what is worth telling (reasoning dropped, double BOS, ...)."""

    def __init__(self, voice: Voice, train_on: str = "assistant", wrap: str | None = None) -> None:
        self.voice, self._train_on, self._wrap = voice, train_on, wrap
        self._template = Template(voice.template, voice.specials) if voice.template else None
        self._plans: dict[tuple[tuple[str, ...], tuple[bool, ...]], _Plan] = {}
        self._ready: dict[tuple[str, ...], _Plan] = {}
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
            pieces = _exactly(template, turns, tools, learnt)
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
            plan = self._plans[key] = _make_plan(template, *key)
        contents = [turn["content"] for turn in turns]
        plan.seen += 1
        if plan.proven and plan.seen % CHECK_EVERY:
            return plan.fill(contents)
        exact = _exactly(template, turns, None, learnt, plan.fill(contents) if plan.pieces else None)
        if plan.proven is None and plan.seen == PROOF_AFTER:
            _prove(template, plan, key)
            self._make_ready(plan, key)
        elif plan.proven and plan.fill(contents) != exact:
            plan.proven = False
            self._ready.pop(key[0], None)
            self.notes["template_varies"] += 1
        return exact

    def _make_ready(self, plan: _Plan, key: tuple[tuple[str, ...], tuple[bool, ...]]) -> None:
        """Offer a proven plan to `quick` when it is the usual one of its roles, its first and last words settled."""
        roles, learnt = key
        usual = self._learnt([{"role": role, "content": "x"} for role in roles], None)
        if not plan.proven or list(learnt) != usual or self._train_on == "all":
            return
        contents = [_placeholder(number) for number in range(len(roles))]
        finished = self._finish(plan.fill(contents))
        self.notes.clear()
        literal = type(plan.pieces[0][0][0]) is str and type(plan.pieces[-1][0][-1]) is str
        if literal and [text for text, _ in finished][1:] == plan.texts(contents)[1:]:
            pieces = tuple((_parts(text), here) for text, here in finished)
            self._ready[roles] = _Plan(pieces, proven=True, strips=plan.strips, learnt=plan.learnt)

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
        pieces = _joined(pieces)
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


def _joined(pieces: Pieces) -> Pieces:
    """Neighbours with the same mask as one piece, empty ones left out."""
    made: Pieces = []
    for text, learnt in pieces:
        if not text:
            continue
        if made and made[-1][1] == learnt:
            made[-1] = (made[-1][0] + text, learnt)
        else:
            made.append((text, learnt))
    return made or [("", False)]


def _thought(turn: Turn) -> str:
    if turn.get("reasoning_content"):
        return str(turn["reasoning_content"]).strip()
    before, closed, _ = turn["content"].partition("</think>")
    return before.replace("<think>", "").strip() if closed else ""


def _exactly(
    template: Template,
    turns: Sequence[Turn],
    tools: Any,
    learnt: Sequence[bool],
    expected: Pieces | None = None,
) -> Pieces:
    """Pieces from the template itself: by its own generation marks, else by construction from prefixes.

    `expected` spares the prefixes when it spells the same text. Raises Unusable where the turns cannot be placed.
    """
    if template.marks:
        marked = _by_marks(template.render_marked(turns, tools), turns, learnt)
        if marked is not None:
            return _joined(marked)
    full = template.render(turns, tools)
    if expected is not None and "".join([text for text, _ in expected]) == full:
        return expected
    return _joined(_cut_by_prefixes(template, turns, tools, learnt, full))


def _by_marks(marked: Pieces | None, turns: Sequence[Turn], learnt: Sequence[bool]) -> Pieces | None:
    """Pieces from the template's own generation marks; None when they do not come one per assistant turn."""
    wanted = [here for turn, here in zip(turns, learnt, strict=True) if turn["role"] == "assistant"]
    if marked is None or sum(said for _, said in marked) != len(wanted):
        return None
    taken = iter(wanted)
    return [(text, said and next(taken)) for text, said in marked]


def _placeholder(number: int) -> str:
    return f"\ue0f2{number}\ue0f3"


def _make_plan(template: Template, roles: tuple[str, ...], learnt: tuple[bool, ...]) -> _Plan:
    """The text around the turns of a pattern of roles, with the mask; an empty plan, proven wrong, where the template
    defeats placeholders."""
    turns = [{"role": role, "content": _placeholder(number)} for number, role in enumerate(roles)]
    try:
        pieces = _exactly(template, turns, None, learnt)
    except Unusable:
        return _Plan((), proven=False)
    whole = "".join([text for text, _ in pieces])
    if any(whole.count(turn["content"]) != 1 for turn in turns):
        return _Plan((), proven=False)
    mask = "".join(["1" if here else "0" for _, here in pieces])
    return _Plan(tuple((_parts(text), here) for text, here in pieces), learnt=mask)


def _prove(template: Template, plan: _Plan, key: tuple[tuple[str, ...], tuple[bool, ...]]) -> None:
    """Set plan.proven: whether the plan gives the template's own pieces for every provoking text in every turn,
    with texts as they are or, for templates that trim, stripped."""
    roles, learnt = key
    probes = template.provoking_texts()
    for plan.strips in (False, True):
        plan.proven = all(
            _same(
                template,
                plan,
                roles,
                learnt,
                [probes[(at + turn) % len(probes)] for turn in range(len(roles))],
            )
            for at in range(len(probes))
        )
        if plan.proven:
            return


def _same(
    template: Template, plan: _Plan, roles: Sequence[str], learnt: Sequence[bool], contents: Sequence[str]
) -> bool:
    turns = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    try:
        if template.marks:
            return _joined(plan.fill(contents)) == _exactly(template, turns, None, learnt)
        return "".join([text for text, _ in plan.fill(contents)]) == template.render(turns)
    except Unusable:
        return False


def _parts(text: str) -> tuple[str | int, ...]:
    """Literals and turn numbers of a text with placeholders."""
    parts: list[str | int] = []
    while text:
        literal, _, rest = text.partition("\ue0f2")
        if literal:
            parts.append(literal)
        number, _, text = rest.partition("\ue0f3")
        if number:
            parts.append(int(number))
    return tuple(parts)


def _span(template: Template, turns: Sequence[Turn], tools: Any, number: int, full: str) -> tuple[int, int]:
    """Where in `full` (with a placeholder in turn `number`) that turn is learnt: from the end of its header,
    as the generation prompt leaves it, to its end mark."""
    mark = turns[number]["content"]
    content = full.index(mark)
    start = _start(template, turns, tools, number, full[:content])
    end = content + len(mark)
    try:
        tail = template.render(turns[: number + 1], tools).rpartition(mark)[2]
    except Unusable:
        tail = ""
    end += _common(tail.rstrip() or tail, full[end:])
    return start, end


def _start(template: Template, turns: Sequence[Turn], tools: Any, number: int, ahead: str) -> int:
    """Where turn `number` begins to be learnt in the text `ahead` of its content: behind the generation prompt, as
    far as it is spelled the same; for a template without one, at the blanks that the model itself would write."""
    try:
        header = template.render(turns[:number], tools, answer_next=True)
        before = template.render(turns[:number], tools) if number else ""
    except Unusable:
        return len(ahead)
    if header == before:
        mark = turns[number]["content"]
        bare = [*turns[:number], {"role": turns[number]["role"], "content": mark}]
        return _common(template.render(bare, tools).partition(mark)[0].rstrip(" "), ahead)
    start = _common(header, ahead)
    return start if start >= _common(before, ahead) else len(ahead)


def _common(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _cut_by_prefixes(
    template: Template, turns: Sequence[Turn], tools: Any, learnt: Sequence[bool], full: str
) -> Pieces:
    """Pieces of a row the plan does not explain: each learnt turn's place is found with a placeholder in its stead.

    What stands before and behind the placeholder must be what stands in the real rendering, so the turn is what
    lies between. Raises Unusable('mask_unclear') where the template changes the surroundings with the turn.
    """
    pieces: Pieces = []
    at = 0
    for number, here in enumerate(learnt):
        if not here:
            continue
        start, end = _place(template, turns, tools, number, full)
        if not at <= start < end:
            raise Unusable("mask_unclear", full[:160])
        pieces += [(full[at:start], False), (full[start:end], True)]
        at = end
    return [*pieces, (full[at:], False)]


def _place(template: Template, turns: Sequence[Turn], tools: Any, number: int, full: str) -> tuple[int, int]:
    """Start and end of what is learnt of turn `number` in `full`."""
    mark = _placeholder(number)
    masked = [{**turn, "content": mark} if at == number else turn for at, turn in enumerate(turns)]
    shown = template.render(masked, tools)
    if shown.count(mark) != 1:
        # The template shows no text here (a turn that only calls a tool).
        return _place_by_prefixes(template, turns, tools, number, full)
    before, after = shown.split(mark)
    start, end = _span(template, masked, tools, number, shown)
    tail = end - len(before) - len(mark)
    if full.endswith(after):
        behind = len(full) - len(after)
    else:
        # What follows differs (a template that treats the last turn in its own way): the turn must end by itself.
        behind = _behind(template, turns, masked, tools, number, full)
    if not full.startswith(before[:start]) or behind < start:
        raise Unusable("mask_unclear", full[:160])
    return start, behind + tail


def _behind(
    template: Template, turns: Sequence[Turn], masked: Sequence[Turn], tools: Any, number: int, full: str
) -> int:
    """Where the text of turn `number` ends in `full`, from the rendering that stops at this turn."""
    upto = template.render(turns[: number + 1], tools)
    tail = template.render(masked[: number + 1], tools).rpartition(_placeholder(number))[2]
    if not full.startswith(upto):
        raise Unusable("mask_unclear", full[:160])
    return len(upto) - len(tail)


def _place_by_prefixes(
    template: Template, turns: Sequence[Turn], tools: Any, number: int, full: str
) -> tuple[int, int]:
    """The same where the turn's text does not show: from the end of its header to the end of the rendering that
    stops at it. Both must be how `full` begins."""
    header = template.render(turns[:number], tools, answer_next=True)
    upto = template.render(turns[: number + 1], tools)
    if not full.startswith(header) or not full.startswith(upto):
        raise Unusable("mask_unclear", full[:160])
    return len(header), len(upto.rstrip())
