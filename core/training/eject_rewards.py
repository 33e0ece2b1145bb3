"""The rewards of an ejected training as a file of their own: our rules word for word, without us.

A rule that is a few functions of the standard library is copied from its source with all that it calls, so that it
cannot differ from ours; what ours does in a limited child process (mathematics, patterns, a user's file) is written
anew in a few lines with the same libraries.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from core.rewards import accuracy, answers, base, file, json_valid, length, repetition, scoring, think_tags
from core.rewards.base import RewardSpec

REWARDS = ("accuracy", "format", "think_tags", "length", "repetition", "json_valid", "file")
"""Rewards that can be written out; an accuracy of mode gym cannot."""
PACKAGES = {"accuracy": ("math-verify", "latex2sympy2_extended"), "format": ("regex",)}
STANDARD = ("asyncio", "importlib.util", "inspect", "json", "math", "re", "string", "sys", "unicodedata")
BESIDE = ("answers",)
"""Modules of ours whose functions are called by the module's name."""


def foreign(rewards: Sequence[RewardSpec]) -> list[str]:
    """The rewards that cannot be written out, by name."""
    names = [f"accuracy of mode {one.mode}" if _is_gym(one) else one.name for one in rewards]
    return [name for name in names if name not in REWARDS]


def _is_gym(reward: RewardSpec) -> bool:
    return isinstance(reward, accuracy.Spec) and reward.mode == "gym"


def packages(rewards: Sequence[RewardSpec]) -> list[str]:
    """What the written rewards need beside the standard library."""
    asked = [
        one for one in rewards if one.name == "format" or (one.name == "accuracy" and _mode(one) == "math")
    ]
    return list(dict.fromkeys(name for one in asked for name in PACKAGES[one.name]))


def functions(rewards: Sequence[RewardSpec]) -> list[str]:
    """What the functions are called, in the order of the rewards."""
    return [f"reward_{name}" for name in scoring.names(rewards)]


def rewards_text(rewards: Sequence[RewardSpec], environ: Mapping[str, str] = os.environ) -> str:
    """rewards.py for a job's rewards. Raises FactoryError for a user's file that is not there."""
    rules: dict[str, str] = dict(_copied(base, "completion_text")) | dict(_copied(scoring, "columns_of"))
    named = list(zip(rewards, functions(rewards), strict=True))
    for reward, _ in named:
        rules |= _rule(reward)
    parts = [*rules.values(), *([_SCORED] if any(one.name != "file" for one in rewards) else [])]
    called = [_function(reward, name, environ) for reward, name in named]
    body = "\n\n\n".join([*parts, *called])
    return "\n\n".join([_ABOUT, "\n".join(_imports(body))]) + "\n\n\n" + body + "\n"


def _imports(body: str) -> Iterator[str]:
    yield from (f"import {name}" for name in STANDARD if re.search(rf"\b{re.escape(name)}\.", body))
    yield "from collections.abc import Mapping"
    if "SimpleNamespace(" in body:
        yield "from types import SimpleNamespace"
    if "regex." in body:
        yield "\nimport regex"
    if "def mathematics(" in body:
        yield "\nfrom math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify"


def _mode(reward: Any) -> str:
    return str(reward.mode)


def _rule(reward: RewardSpec) -> dict[str, str]:
    """The functions that a reward is made of, by name."""
    if reward.name == "accuracy" and _mode(reward) == "math":
        copied = ("wanted_answers", "_readings")
        return {
            **{name: text for one in copied for name, text in _copied(accuracy, one)},
            **dict(_copied(answers, "final_answer")),
            "math": _MATH,
        }
    if reward.name == "accuracy":
        return dict(_copied(accuracy, _COMPARE[_mode(reward)]))
    if reward.name == "format":
        return {"format": _FORMAT}
    if reward.name == "file":
        return {"file": _OWN}
    module = {"length": length, "repetition": repetition, "json_valid": json_valid, "think_tags": think_tags}
    return {
        name if name != "_score" else f"_score_{reward.name}": re.sub(
            r"\b_score\b", f"_score_{reward.name}", text
        )
        for name, text in _copied(module[reward.name], "_score")
    }


_COMPARE = {"number": "_number", "exact": "_exact", "multiple_choice": "_choice"}


def _copied(module: ModuleType, name: str) -> Iterator[tuple[str, str]]:
    """A definition of a module, behind those of ours that it uses: name and text, types left out."""
    source = inspect.getsource(module)
    there = {_name_of(node): node for node in ast.parse(source).body}
    node = there[name]
    bare = _without_types(node)
    for inner in ast.walk(bare):
        if isinstance(inner, ast.Name) and inner.id != name and inner.id in there:
            yield from _copied(module, inner.id)
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.value, ast.Name)
            and inner.value.id in BESIDE
        ):
            yield from _copied(getattr(module, inner.value.id), inner.attr)
    text = ast.get_source_segment(source, node) or ""
    if isinstance(node, ast.FunctionDef):
        assert isinstance(bare, ast.FunctionDef)
        first = node.body[0].lineno - node.lineno
        lines = [f"def {name}({ast.unparse(bare.args)}):", *text.splitlines()[first:]]
        text = re.sub(r"^(\s+\w+): [^=\n]+ = ", r"\1 = ", "\n".join(lines), flags=re.MULTILINE)
    for beside in BESIDE:
        text = text.replace(f"{beside}.", "")
    yield name, text


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return str(getattr(node, "name", ""))


def _without_types(node: ast.stmt) -> ast.stmt:
    """A copy without annotations, whose names are no part of what is run."""
    copy = ast.parse(ast.unparse(node)).body[0]
    for inner in ast.walk(copy):
        if isinstance(inner, ast.arg):
            inner.annotation = None
        if isinstance(inner, ast.AnnAssign):
            inner.annotation = ast.Constant(None)
        if isinstance(inner, ast.FunctionDef):
            inner.returns = None
    return copy


def _function(reward: Any, name: str, environ: Mapping[str, str]) -> str:
    """The function that trl calls, behind its settings."""
    about = f'"""Reward {name.removeprefix("reward_")}, weight {reward.weight:g}."""'
    tasks = f", tasks={reward.tasks!r}" if reward.tasks is not None else ""
    head = f"def {name}(prompts, completions, **columns):\n    {about}\n"
    constant = name.removeprefix("reward_").upper()
    if reward.name == "file":
        path = str(file.script_path(reward, environ))
        call = f"asked({constant}, prompts, completions, columns{tasks})"
        return f"{constant} = own({path!r})\n\n\n{head}    return {call}"
    settings, score = _settings(reward, constant)
    body = f"    score = lambda text, row: {score}\n    return scored(score, prompts, completions, columns{tasks})"
    return f"{settings}\n\n\n{head}{body}"


def _settings(reward: Any, constant: str) -> tuple[str, str]:
    """A reward's settings as the script has them, and the call that scores one answer."""
    if reward.name == "format":
        flags = [("DOTALL", reward.dot_matches_newline), ("IGNORECASE", reward.ignore_case)]
        given = " | ".join(f"regex.{flag}" for flag, on in flags if on) or "0"
        how = "fullmatch" if reward.match == "whole" else "search"
        return (
            f"{constant} = regex.compile({reward.pattern!r}, {given}).{how}",
            f"matches({constant}, text, {reward.seconds!r})",
        )
    used = _USED[_mode(reward) if reward.name == "accuracy" else reward.name]
    values = ", ".join(f"{field}={getattr(reward, field)!r}" for field in used)
    answer = f"row.get({reward.column!r})" if reward.name == "accuracy" else ""
    calls = {
        "accuracy": f"mathematics({constant}, text, {answer})"
        if answer and _mode(reward) == "math"
        else f"{_COMPARE.get(_mode(reward) if answer else '', '')}({constant}, text, {answer}, row.get('choices'))",
        "think_tags": f"_score_think_tags({constant}, text, row['prompt'])",
    }
    return (
        f"{constant} = SimpleNamespace({values})",
        calls.get(reward.name, f"_score_{reward.name}({constant}, text)"),
    )


_USED = {
    "math": ("look_in",),
    "number": ("look_in", "tolerance"),
    "exact": ("look_in", "case_sensitive"),
    "multiple_choice": ("look_in",),
    "think_tags": ("opening", "closing", "partial"),
    "length": ("unit", "shortest", "longest", "fade"),
    "repetition": ("run", "unit"),
    "json_valid": ("keys", "fenced"),
}
_ABOUT = '''"""The rewards of this training: each gives one number an answer, or None where it does not apply.

trl calls them with the prompts, the answers and every column of the rows; how much each counts stands in the
trainer's reward_weights.
"""'''
_SCORED = textwrap.dedent('''\
    def scored(score, prompts, completions, columns, tasks=None):
        """`score(text, row)` of every answer; None for rows of other tasks."""
        columns = columns_of(prompts, columns)
        rows = [{name: column[place] for name, column in columns.items()} for place in range(len(completions))]
        return [
            score(completion_text(one), row) if tasks is None or row["task"] in tasks else None
            for one, row in zip(completions, rows, strict=True)
        ]''')
_FORMAT = textwrap.dedent('''\
    def matches(match, text, seconds):
        """1.0 or 0.0; None when the pattern takes too long."""
        try:
            return float(match(text, timeout=seconds) is not None)
        except TimeoutError:
            return None''')
_MATH = textwrap.dedent('''\
    def mathematics(spec, completion, answer):
        """Equal as mathematics, by math-verify; None for a row without an answer that is mathematics."""
        wanted = [str(one) for one in wanted_answers(answer)]
        part = final_answer(completion, spec.look_in)
        if not wanted or part is None:
            return 0.0 if wanted else None
        golds = [read for one in wanted if (read := gold(one))]
        if not golds:
            return None
        looked_for = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
        given = [parse(text, extraction_config=looked_for) for text in _readings(part, completion)]
        return float(any(verify(one, read) for read in given for one in golds))


    def gold(text):
        """A right answer as math-verify reads it: mathematics without marks is given some."""
        return ([] if "$" in text or "\\\\boxed" in text else parse(f"${text}$")) or parse(text)''')
_OWN = textwrap.dedent('''\
    def own(path):
        """The function `reward` of a file of your own, beside which it finds what it imports."""
        sys.path.append(str(path).rpartition("/")[0])
        spec = importlib.util.spec_from_file_location("own_" + str(path).rpartition("/")[2].removesuffix(".py"), path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module.reward


    def asked(reward, prompts, completions, columns, tasks=None):
        """What your own function gives: it gets the columns it names, or all that there are; None for other tasks."""
        columns = {**columns_of(prompts, columns), "completions": [completion_text(one) for one in completions]}
        rows = [row for row in range(len(completions)) if tasks is None or columns["task"][row] in tasks]
        columns = {name: [column[row] for row in rows] for name, column in columns.items()}
        columns["prompts"] = columns["prompt"]
        others = {"completion": "completions", "answers": "answer"}
        others = {name: columns[same] for name, same in others.items() if name not in columns and same in columns}
        named = inspect.signature(reward).parameters
        whole = any(one.kind is one.VAR_KEYWORD for one in named.values())
        given = {name: value for name, value in columns.items() if whole or name in named}
        scores = reward(**given, **{name: value for name, value in others.items() if name in named}) if rows else []
        scores = asyncio.run(scores) if inspect.iscoroutine(scores) else scores
        found = dict(zip(rows, scores, strict=True))
        return [found.get(row) for row in range(len(completions))]''')
