"""Conversation trees: OpenAssistant (nested or one message a row), and question-answer rows chained by parent id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from data.formats.base import Columns, Gathered, Given, Match, Record, mapping, text_cell
from data.formats.pairs import pairs_of
from data.rows import ROLE_WORDS, Row, Turn, Unusable
from data.settings import Choices

NAME = "trees"
ABOUT = "conversation trees (OpenAssistant, nested or flat) and rows chained by parent_id"
GIVES = ("messages", "preference")
GATHERS = ("messages", "preference")
MAX_TURNS = 1000

_IDS = ("message_id", "id")
_PARENTS = ("parent_id", "parent")


def matches(columns: Columns, given: Given) -> Match | None:
    """A prompt with recursive replies; or id and parent id beside a text and role, or beside a question and answer."""
    nested = columns.find("tree", ("prompt", "tree"), given)
    if nested is not None and any(isinstance(value, dict) and "replies" in value for value in nested.values):
        return Match(NAME, 0.98, {"tree": nested.name}, f"column {nested.name} holds a message with replies")
    ids, parents = columns.find("id", _IDS, given), columns.find("parent_id", _PARENTS, given)
    if ids is None or parents is None:
        return None
    text, role = columns.text("text", ("text", "content"), given), columns.text("role", ("role",), given)
    if text is not None and role is not None:
        rank = columns.find("rank", ("rank",), given)
        found = mapping(id=ids, parent_id=parents, text=text, role=role, rank=rank)
        return Match(NAME, 0.97, found, f"columns {ids.name} and {parents.name} link messages")
    asked = columns.text("instruction", ("instruction", "prompt", "question", "input"), given)
    answered = columns.text("output", ("output", "response", "answer", "completion"), given)
    if asked is None or answered is None:
        return None
    found = mapping(id=ids, parent_id=parents, instruction=asked, output=answered)
    return Match(NAME, 0.97, found, f"columns {ids.name} and {parents.name} chain rows", gives=("messages",))


def gather(
    items: Iterable[tuple[int, Record | Unusable]], shape: str, match: Match, choices: Choices
) -> Gathered:
    """Whole trees: {tree: {text, role, rank, replies}}; chained rows: {chain: [rows]} per last row."""
    if "tree" in match.columns:
        for line, record in items:
            yield (
                line,
                record if isinstance(record, Unusable) else {"tree": record.get(match.columns["tree"])},
            )
        return
    nodes: dict[str, tuple[int, Record]] = {}
    for line, record in items:
        if isinstance(record, Unusable):
            yield line, record
        else:
            nodes[text_of(record, match.columns["id"])] = (line, record)
    yield from _linked(nodes, match)


def text_of(record: Record, column: str) -> str:
    """An id as text."""
    return text_cell(record, column).strip()


def _linked(nodes: Mapping[str, tuple[int, Record]], match: Match) -> Gathered:
    children: dict[str, list[str]] = {}
    roots = []
    for name, (line, record) in nodes.items():
        parent = text_of(record, match.columns["parent_id"])
        if not parent or parent.lower() in ("null", "none", "nan"):
            roots.append(name)
        elif parent in nodes:
            children.setdefault(parent, []).append(name)
        else:
            yield line, Unusable("orphan", f"{name} -> {parent}")
    chained = "instruction" in match.columns
    reached: set[str] = set()
    for root in roots:
        line = nodes[root][0]
        if chained:
            yield from _chains(root, nodes, children, reached)
        else:
            yield line, {"tree": _tree(root, nodes, children, reached, match)}
    for name, (line, record) in nodes.items():
        parent = text_of(record, match.columns["parent_id"])
        if name not in reached and parent in nodes and _in_cycle(name, nodes, match):
            yield line, Unusable("cycle", name)


def _in_cycle(name: str, nodes: Mapping[str, tuple[int, Record]], match: Match) -> bool:
    seen: set[str] = set()
    at = name
    while at in nodes and at not in seen:
        seen.add(at)
        at = text_of(nodes[at][1], match.columns["parent_id"])
    return at in seen


def _chains(
    root: str, nodes: Mapping[str, tuple[int, Record]], children: Mapping[str, list[str]], reached: set[str]
) -> Gathered:
    """Every path from a root to a row nobody follows."""
    stack = [(root, [root])]
    while stack:
        name, path = stack.pop()
        reached.add(name)
        below = children.get(name, [])
        if not below:
            yield nodes[name][0], {"chain": [nodes[one][1] for one in path]}
        stack += [(child, [*path, child]) for child in reversed(below) if len(path) < MAX_TURNS]


def _tree(
    root: str,
    nodes: Mapping[str, tuple[int, Record]],
    children: Mapping[str, list[str]],
    reached: set[str],
    match: Match,
) -> dict[str, Any]:
    made: dict[str, dict[str, Any]] = {}
    stack = [root]
    while stack:
        name = stack.pop()
        reached.add(name)
        record = nodes[name][1]
        rank = record.get(match.columns["rank"]) if "rank" in match.columns else None
        made[name] = {
            "text": text_cell(record, match.columns["text"]),
            "role": text_cell(record, match.columns["role"]),
            "rank": rank,
            "replies": [],
        }
        stack += children.get(name, [])
    for name in made:
        made[name]["replies"] = [made[child] for child in children.get(name, [])]
    return made[root]


def to_rows(record: Record, shape: str, match: Match, choices: Choices) -> list[Row]:
    """Of a tree: the best-ranked path, or pairs of ranked siblings. Of a chain: its turns."""
    if "chain" in record:
        return [{"messages": _chain_turns(record["chain"], match)}]
    tree = record["tree"]
    if not isinstance(tree, dict):
        raise Unusable("wrong_type", repr(tree)[:160])
    return [{"messages": _best_path(tree)}] if shape == "messages" else _sibling_pairs(tree, choices)


def _chain_turns(chain: list[Record], match: Match) -> list[Turn]:
    turns: list[Turn] = []
    for record in chain:
        turns += [
            {"role": "user", "content": text_cell(record, match.columns["instruction"])},
            {"role": "assistant", "content": text_cell(record, match.columns["output"])},
        ]
    return turns


def _turn(node: Mapping[str, Any]) -> Turn:
    role = ROLE_WORDS.get(str(node.get("role", "")).strip().lower())
    if role is None or role == "call":
        raise Unusable("unknown_role", str(node.get("role"))[:80])
    return {"role": role, "content": str(node.get("text") or "")}


def _rank(node: Mapping[str, Any]) -> float | None:
    value = node.get("rank")
    try:
        return float(value) if value is not None and value != "" else None
    except (TypeError, ValueError):
        return None


def _replies(node: Mapping[str, Any]) -> list[Any]:
    """The replies, best first; unranked ones last in their order."""
    replies = [one for one in node.get("replies") or [] if isinstance(one, dict)]
    ranks = [(_rank(one), at, one) for at, one in enumerate(replies)]
    return [one for _, _, one in sorted(ranks, key=lambda r: (float("inf") if r[0] is None else r[0], r[1]))]


def _best_path(tree: Mapping[str, Any]) -> list[Turn]:
    turns = [_turn(tree)]
    node = tree
    while (replies := _replies(node)) and len(turns) < MAX_TURNS:
        node = replies[0]
        turns.append(_turn(node))
    if turns[-1]["role"] == "user" and len(turns) > 1:
        turns.pop()
    return turns


def _sibling_pairs(tree: Mapping[str, Any], choices: Choices) -> list[Any]:
    rows: list[Any] = []
    stack: list[tuple[Mapping[str, Any], list[Turn]]] = [(tree, [_turn(tree)])]
    while stack:
        node, path = stack.pop()
        replies = _replies(node)
        ranked = [(str(one.get("text") or ""), -rank) for one in replies if (rank := _rank(one)) is not None]
        if path[-1]["role"] == "user" and len(ranked) > 1:
            prompt: Any = path if len(path) > 1 else path[0]["content"]
            rows += pairs_of(prompt, ranked, choices, as_turns=len(path) > 1)
        if len(path) < MAX_TURNS:
            stack += [(reply, [*path, _turn(reply)]) for reply in reversed(replies)]
    if not rows:
        raise Unusable("no_pair", path_text(tree))
    return rows


def path_text(tree: Mapping[str, Any]) -> str:
    """How a tree begins, for a report."""
    return str(tree.get("text") or "")[:80]
