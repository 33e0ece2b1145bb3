"""Which format a sample of records is in, and which row shape a stage gets from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from data.errors import FactoryError, Finding, refuse
from data.formats import FORMATS, format_module
from data.formats.base import WORDS, Columns, Match
from data.rows import SHAPES
from data.settings import Source

STAGE_NEEDS: Mapping[str, tuple[str, ...]] = {
    "pretrain": ("text",),
    "sft": ("messages", "completion", "text"),
    "reward": ("preference",),
    "dpo": ("preference",),
    "orpo": ("preference",),
    "kto": ("feedback",),
    "ppo": ("prompt",),
    "grpo": ("prompt",),
    "rloo": ("prompt",),
}
"""Row shapes per stage, best first, for inspecting a file before its stage is chosen (a stage's own NEEDS win)."""

SHAPE_WORDS: Mapping[str, str] = {
    "text": "texts",
    "messages": "conversations",
    "completion": "prompts with a completion",
    "preference": "prompts with a chosen and a rejected answer",
    "feedback": "prompts with an answer and a good/bad label",
    "prompt": "prompts",
}


def explain(records: Sequence[Mapping[str, Any]], source: Source) -> list[Match]:
    """Every format that explains the records, best first. Raises FactoryError when none does, naming the columns.

    A format that is clear shuts out the weaker ones for the shapes it does not give: rows with a good/bad label are
    not quietly taken for plain answers.
    """
    columns = Columns(records)
    _check_words(source)
    _check_given(columns, source)
    modules = FORMATS if source.format is None else (_named(source.format),)
    found: list[Match] = []
    for module in modules:
        match: Match | None = module.matches(columns, source.columns)
        if match is not None:
            if match.sure > GUESS or not found:
                found.append(match)
            if match.clear and module.NAME in FINAL:
                break
    if found:
        return found
    seen = _listed(columns)
    if source.format is not None:
        raise refuse(
            "data_format_does_not_fit",
            f"The file does not look like format {source.format} (columns: {seen}): "
            "map its columns with data.columns or leave data.format empty.",
            field="data.format",
            value=source.format,
        )
    raise refuse(
        "data_not_recognised",
        f"No known format fits the columns {seen}: say which column is which, for example "
        f"data.columns: {{prompt: {next(iter(columns.all), 'question')[:40]}, completion: ...}}.",
        field="data.columns",
        value=list(columns.all)[:20],
    )


GUESS = 0.6
"""Matches no surer than this are guesses, taken only when nothing else fits."""

FINAL = frozenset(
    (
        "trees",
        "squad",
        "compared",
        "ranked",
        "feedback",
        "multiple_choice",
        "scored",
        "maths",
        "turn_pairs",
        "seed_tasks",
    )
)
"""Formats after which no weaker one is looked at."""


def _listed(columns: Columns) -> str:
    """The names of the first columns, long ones shortened."""
    return ", ".join(name if len(name) <= 40 else f"{name[:37]}..." for name in list(columns.all)[:20])


def _named(name: str) -> ModuleType:
    try:
        return format_module(name)
    except KeyError:
        import difflib

        known = [module.NAME for module in FORMATS]
        close = difflib.get_close_matches(name, known, 1)
        raise refuse(
            "data_format_unknown",
            f"There is no data format {name}{f': did you mean {close[0]}?' if close else ''} "
            f"(known: {', '.join(known)}).",
            field="data.format",
            value=name,
        ) from None


def _check_words(source: Source) -> None:
    """Refuse words of `data.columns` that no format asks for: a typo there would do nothing, silently."""
    import difflib

    unknown = [word for word in source.columns if word not in WORDS]
    close = {word: difflib.get_close_matches(word, WORDS, 1) for word in unknown}
    if unknown:
        raise FactoryError(
            [
                Finding(
                    "data_column_word_unknown",
                    f"data.columns.{word} is no word that formats know; "
                    + (
                        f"did you mean {close[word][0]}?"
                        if close[word]
                        else f"they know {', '.join(sorted(WORDS))}."
                    ),
                    "error",
                    f"data.columns.{word}",
                    word,
                )
                for word in unknown
            ]
        )


def _check_given(columns: Columns, source: Source) -> None:
    missing = {word: name for word, name in source.columns.items() if name not in columns.all}
    if missing:
        seen = _listed(columns)
        raise FactoryError(
            [
                Finding(
                    "data_column_missing",
                    f"data.columns.{word} names the column {name}, which the file does not have (columns: {seen}).",
                    "error",
                    f"data.columns.{word}",
                    name,
                )
                for word, name in missing.items()
            ]
        )


def gives(match: Match) -> tuple[str, ...]:
    """The row shapes a match can give, best first."""
    shapes: tuple[str, ...] = match.gives or format_module(match.format).GIVES
    return shapes


def shape_for(match: Match, needs: Sequence[str]) -> str | None:
    """The best row shape for a stage that the match can give, or None."""
    return next((shape for shape in needs if shape in gives(match)), None)


def choose(found: Sequence[Match], needs: Sequence[str], stage: str | None = None) -> tuple[Match, str]:
    """The match to use for a stage and the row shape it gives. Raises FactoryError naming columns, stage and the
    stages that would fit. Without needs, the best match in its best shape."""
    if not needs:
        return found[0], gives(found[0])[0]
    for match in found:
        shape = shape_for(match, needs)
        if shape is not None:
            return match, shape
    raise _does_not_fit(found, needs, stage)


def stages_for(found: Sequence[Match]) -> dict[str, bool | str]:
    """For each stage: True when the file fits it, else why not."""
    return {
        stage: True if any(shape_for(match, needs) for match in found) else why_not(found[0], needs)
        for stage, needs in STAGE_NEEDS.items()
    }


def why_not(match: Match, needs: Sequence[str]) -> str:
    """One clause: what the stage needs and what the file holds."""
    wanted = " or ".join(SHAPE_WORDS[shape] for shape in needs)
    held = " or ".join(SHAPE_WORDS[shape] for shape in gives(match))
    return f"it needs {wanted}, and the file ({_columns(match)}) gives {held}"


def _columns(match: Match) -> str:
    return ", ".join(dict.fromkeys(name for word, name in match.columns.items() if word != "border"))


def _does_not_fit(found: Sequence[Match], needs: Sequence[str], stage: str | None) -> FactoryError:
    fitting = [name for name, fits in stages_for(found).items() if fits is True]
    wanted = " or ".join(SHAPE_WORDS[shape] for shape in needs if shape in SHAPES)
    match = found[0]
    return refuse(
        "data_shape_does_not_fit",
        f"Stage {stage or '/'.join(needs)} needs {wanted}, but the file ({_columns(match)}) was read as format "
        f"{match.format}: use stage {' or '.join(fitting) or 'another'}, "
        "or say how to read it with data.format or data.columns.",
        field="stage",
        value=stage,
        fix={"stage.name": fitting[0]} if fitting else None,
        columns=_columns(match),
        format=match.format,
        stages=fitting,
    )
