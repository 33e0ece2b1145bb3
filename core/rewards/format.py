"""Format: 1 when the completion matches a pattern, else 0. A slow pattern is stopped, it never hangs a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from core.job.base import unit
from core.rewards.base import Columns, RewardSpec, Scorer, Setting, short
from data.errors import Finding, refuse

PATTERN = r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*"
MOST_SLOW = 4
COMPILE_SECONDS = 4.0


class Spec(RewardSpec):
    """Does the completion have the wanted form? Checked by a regular expression."""

    name: Literal["format"] = "format"
    """The reward."""
    pattern: str = Field(PATTERN, min_length=1, max_length=2000)
    """A regular expression as Python and its library `regex` know them. Default: <think>, then <answer>."""
    match: Literal["whole", "anywhere"] = "whole"
    """whole: the completion from its first to its last character. anywhere: some part of it."""
    dot_matches_newline: bool = True
    """The dot also stands for line breaks."""
    ignore_case: bool = False
    """Capital and small letters are the same."""
    seconds: float = Field(0.5, ge=0.01, le=60, json_schema_extra=unit("seconds"))
    """The time for one completion; one that takes longer gets no score, and a warning. Several: the run stops."""


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer of 1.0 or 0.0; None where the pattern took too long.

    The pattern works in a child process, because compiling some patterns alone takes hours and gigabytes. Raises
    FactoryError for a pattern that is wrong, or that is too slow for 4 completions of a batch.
    """
    from core.sandbox.child import Child, ChildRaised, ChildTimeout, answer_each

    flags = [
        name for name, on in (("DOTALL", spec.dot_matches_newline), ("IGNORECASE", spec.ignore_case)) if on
    ]
    settings = {"pattern": spec.pattern, "whole": spec.match == "whole", "flags": flags}
    child = Child("regex", settings, ready_seconds=COMPILE_SECONDS)
    try:
        child.start()
    except ChildRaised as problem:
        kind, _, reason = str(problem).partition(": ")
        if kind == "MemoryError":  # a fast machine is out of memory before it is out of time
            raise _too_slow(spec, "cannot even be compiled in the memory that a pattern may take") from None
        raise refuse(
            "bad_pattern",
            f"the format reward's pattern {short(spec.pattern)} is not a regular expression: {reason}.",
            field="pattern",
            value=spec.pattern,
        ) from None
    except ChildTimeout:
        raise _too_slow(spec, f"cannot even be compiled within {COMPILE_SECONDS:g} s") from None

    def score(completions: Sequence[str], columns: Columns) -> list[float | None]:
        found = answer_each(child, completions, spec.seconds, most_timeouts=MOST_SLOW)
        slow = [text for text, (_, why) in zip(completions, found, strict=True) if why is not None]
        if len(slow) >= MOST_SLOW:
            raise _too_slow(
                spec, f"takes more than {spec.seconds:g} s on texts such as {short(slow[0])}", slow[0]
            )
        if slow:
            setting.emit(
                Finding(
                    "reward_pattern_slow",
                    f"the format reward's pattern took more than {spec.seconds:g} s on {short(slow[0])}, "
                    f"which gets no score ({len(slow)} of {len(completions)}); simplify nested repeats in it.",
                    "warning",
                    "rewards",
                    params={"reward": "format", "slow": len(slow)},
                )
            )
        return [None if matched is None else float(matched) for matched, _ in found]

    return score


def _too_slow(spec: Spec, why: str, example: str | None = None) -> Exception:
    return refuse(
        "reward_pattern_slow",
        f"the format reward's pattern {short(spec.pattern)} {why}; simplify nested repeats such as (a+)+.",
        field="pattern",
        value=spec.pattern,
        example=example,
    )
