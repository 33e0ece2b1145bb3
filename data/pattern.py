"""The text around the turns of a pattern of roles: found once, proven with provoking texts, then only filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data.cut import Pieces, exactly, joined, placeholder
from data.rows import Unusable
from data.template import Template


@dataclass
class Plan:
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


def make_plan(template: Template, roles: tuple[str, ...], learnt: tuple[bool, ...]) -> Plan:
    """The text around the turns of a pattern of roles, with the mask; an empty plan, proven wrong, where the template
    defeats placeholders."""
    turns = [{"role": role, "content": placeholder(number)} for number, role in enumerate(roles)]
    try:
        pieces = exactly(template, turns, None, learnt)
    except Unusable:
        return Plan((), proven=False)
    whole = "".join([text for text, _ in pieces])
    if any(whole.count(turn["content"]) != 1 for turn in turns):
        return Plan((), proven=False)
    mask = "".join(["1" if here else "0" for _, here in pieces])
    return Plan(tuple((parts_of(text), here) for text, here in pieces), learnt=mask)


def prove(template: Template, plan: Plan, key: tuple[tuple[str, ...], tuple[bool, ...]]) -> None:
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
    template: Template, plan: Plan, roles: Sequence[str], learnt: Sequence[bool], contents: Sequence[str]
) -> bool:
    turns = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    try:
        if template.marks:
            return joined(plan.fill(contents)) == exactly(template, turns, None, learnt)
        return "".join([text for text, _ in plan.fill(contents)]) == template.render(turns)
    except Unusable:
        return False


def parts_of(text: str) -> tuple[str | int, ...]:
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
