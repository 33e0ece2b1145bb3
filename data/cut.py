"""Which pieces of a template's rendering are learnt, cut out while it is put together and never searched for in it.

By the template's own generation marks where it has them; else the place of each turn is found with a placeholder in its
stead, and what stands before and behind it must be what stands in the real rendering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data.rows import Turn, Unusable
from data.template import Template

Piece = tuple[str, bool]
"""(text, learnt)"""
Pieces = list[Piece]


def exactly(
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
            return joined(marked)
    full = template.render(turns, tools)
    if expected is not None and "".join([text for text, _ in expected]) == full:
        return expected
    return joined(_cut_by_prefixes(template, turns, tools, learnt, full))


def joined(pieces: Pieces) -> Pieces:
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


def placeholder(number: int) -> str:
    return f"\ue0f2{number}\ue0f3"


def _by_marks(marked: Pieces | None, turns: Sequence[Turn], learnt: Sequence[bool]) -> Pieces | None:
    """Pieces from the template's own generation marks; None when they do not come one per assistant turn."""
    wanted = [here for turn, here in zip(turns, learnt, strict=True) if turn["role"] == "assistant"]
    if marked is None or sum(said for _, said in marked) != len(wanted):
        return None
    taken = iter(wanted)
    return [(text, said and next(taken)) for text, said in marked]


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
    mark = placeholder(number)
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
    tail = template.render(masked[: number + 1], tools).rpartition(placeholder(number))[2]
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
