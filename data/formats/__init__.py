"""One file per family of data shapes. A new one is a file here and its name in FORMATS; the first that fits wins."""

from types import ModuleType

from data.formats import (
    alpaca,
    compared,
    dolly,
    feedback,
    marked_text,
    maths,
    messages,
    multiple_choice,
    plain_text,
    preference,
    prompt_completion,
    prompts,
    question_answer,
    ranked,
    scored,
    seed_tasks,
    squad,
    trees,
    turn_pairs,
    turn_texts,
)

FORMATS: tuple[ModuleType, ...] = (
    trees,
    squad,
    compared,
    preference,
    ranked,
    feedback,
    multiple_choice,
    scored,
    maths,
    prompts,
    messages,
    turn_pairs,
    seed_tasks,
    dolly,
    alpaca,
    prompt_completion,
    question_answer,
    marked_text,
    turn_texts,
    plain_text,
)


def format_module(name: str) -> ModuleType:
    """The module of the format called `name`. Raises KeyError."""
    return next((module for module in FORMATS if name == module.NAME), None) or _unknown(name)


def _unknown(name: str) -> ModuleType:
    raise KeyError(name)
