"""What every reward has in common. A reward file holds `Spec` and `scorer(spec, setting)`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import ConfigDict, Field

from core.job.base import Named
from data.errors import Finding

Columns = Mapping[str, Sequence[Any]]
"""The rows of a batch by column: `prompt` as text, `messages` for chats, and every free column such as `answer`."""


class RewardSpec(Named):
    """A reward and the settings that only it has."""

    # Built once, inside the job, instead of once more at import: a quarter of the time that importing a job takes.
    model_config = ConfigDict(defer_build=True)

    weight: float = Field(1.0, ge=-1000, le=1000)
    """The score is multiplied by this before the rewards of an answer are added; negative turns it into a penalty."""
    tasks: list[str] | None = Field(None, min_length=1, max_length=1000)
    """Only rows whose `task` column holds one of these get this reward. Empty: all rows."""

    range: ClassVar[str] = "0 or 1"
    """The scores it gives, before the weight."""
    operator: ClassVar[str] = ""
    """The environment variable by which the operator of the machine enables it; empty for none."""
    trial_rows: ClassVar[int] = 4
    """How many rows it is tried on before a run starts."""
    cheap: ClassVar[bool] = True
    """Whether it may be asked again, row by row, to find the row on which it raises."""

    @property
    def title(self) -> str:
        """What metrics and sentences call it."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data without which it can score nothing."""
        return () if self.tasks is None else ("task",)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of environment variables that the run must get for it."""
        return ()


class Scorer(Protocol):
    """Scores a batch of answers: one number per answer, None where the reward does not apply to that row.

    Answers are plain text, chats are turned into text before. Higher is better. May raise FactoryError.
    """

    def __call__(self, completions: Sequence[str], columns: Columns) -> list[float | None]:
        """The scores, in the order of the answers."""


@dataclass(frozen=True)
class Setting:
    """Where rewards work: the home folder, the operator's environment, the device, and who hears of warnings."""

    home: Path
    emit: Callable[[Finding], None]
    device: str = "cpu"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    log: bool = True
    """Whether what a user's file prints, and its tracebacks, go to our stderr: a run's log, but not a terminal."""


def completion_text(completion: Any) -> str:
    """An answer as plain text: text stays, of messages the contents are joined (parts of type text only)."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        content = completion.get("content")
        if isinstance(content, str) or content is None:
            return content or ""
        return "".join(part.get("text", "") for part in content if part.get("type", "text") == "text")
    return "\n".join(completion_text(message) for message in completion)


def short(text: Any, limit: int = 80) -> str:
    """A text on one line, cut, for the middle of a sentence."""
    line = " ".join(str(text).split())
    return repr(line if len(line) <= limit else line[: limit - 1] + "…")


def values(columns: Columns, name: str, count: int) -> Sequence[Any]:
    """A column, or as many times None when the batch does not have it."""
    return columns.get(name, [None] * count)
