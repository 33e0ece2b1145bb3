"""File: a reward function of the user's own, in a Python file that the operator put into the rewards folder.

Job files and forms hold no code: they name a file of FACTORY_REWARDS_DIR. It runs in a process of its own, so that
a function that hangs, prints, or leaves does no harm to the run.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.job.base import unit
from core.rewards.base import Columns, RewardSpec, Scorer, Setting, completion_text, values
from data.errors import FactoryError, refuse
from data.userpath import user_path

FOLDER = "FACTORY_REWARDS_DIR"
RIGHT_FORM = "def reward(completions, **columns): return [one number per completion]"
SAME_AS = {"prompts": "prompt", "completion": "completions", "answers": "answer"}
"""Names that functions written for other trainers use, and which column they get."""

Script = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}(\.py)?$",
        json_schema_extra={"shape": "the form quality or quality.py, a file of the rewards folder"},
    ),
]


class Spec(RewardSpec):
    """A function `reward(completions, **columns)` in a Python file of the operator's rewards folder."""

    name: Literal["file"] = "file"
    """The reward."""
    script: Script
    """The file in FACTORY_REWARDS_DIR, by name only: quality, or quality.py."""
    seconds: float = Field(60.0, ge=0.1, le=86_400, json_schema_extra=unit("seconds"))
    """The longest time for one batch; a function that takes longer stops the run."""
    start_seconds: float = Field(8.0, ge=0.1, le=3600, json_schema_extra=unit("seconds"))
    """The longest time for loading the file, and for the trial on 4 rows. More when it loads a model."""

    range: ClassVar[str] = "any number"
    operator: ClassVar[str] = FOLDER

    @property
    def title(self) -> str:
        """The file's name stands for the reward."""
        return self.script.removesuffix(".py")


def scorer(spec: Spec, setting: Setting) -> Scorer:
    """A scorer that calls the file's function in a process of its own.

    Raises FactoryError when there is no rewards folder, no such file in it, when it cannot be loaded in time, or
    when its function has the wrong form.
    """
    path = script_path(spec, setting.environ)
    return _FileScorer(spec, path, log=setting.log)


def script_path(spec: Spec, environ: Mapping[str, str]) -> Path:
    """The real file that `script` names inside the rewards folder: no link, and not writable for everybody."""
    where = environ.get(FOLDER)
    if not where:
        raise refuse(
            "no_rewards_folder",
            f"there is no rewards folder: the operator names one in the environment, {FOLDER}=folder, and puts "
            f"{spec.title}.py into it.",
            field="script",
            value=spec.script,
        )
    folder = user_path(where)
    path = folder / f"{spec.title}.py"
    try:
        modes = [folder.stat().st_mode, path.lstat().st_mode]
    except OSError:
        there = ", ".join(sorted(one.stem for one in folder.glob("*.py"))) if folder.is_dir() else ""
        raise refuse(
            "reward_file_missing",
            f"there is no {spec.title}.py in the rewards folder; there are: {there or 'no Python files'}.",
            field="script",
            value=spec.script,
        ) from None
    if not stat.S_ISREG(modes[1]):
        raise refuse(
            "reward_file_not_plain",
            f"{spec.title}.py in the rewards folder is a link or no file; copy the file itself there.",
            field="script",
            value=spec.script,
        )
    if any(mode & stat.S_IWOTH for mode in modes):
        raise refuse(
            "reward_file_open",
            f"{spec.title}.py or the rewards folder can be changed by every user of this machine; take that right "
            "away (chmod o-w) before it is run.",
            field="script",
            value=spec.script,
        )
    return path


class _FileScorer:
    """The function in its process. The first batch is a trial: it gets the short time limit."""

    def __init__(self, spec: Spec, path: Path, *, log: bool) -> None:
        from core.sandbox.child import Child, ChildError

        self._spec = spec
        self._tried = False
        self._child = Child(
            "python_file", {"path": str(path)}, isolated=False, ready_seconds=spec.start_seconds, log=log
        )
        try:
            self._child.start()
        except ChildError as problem:
            raise self._failed("cannot be loaded", problem, spec.start_seconds) from None
        self._form = self._checked_form(self._child.about)

    def __call__(self, completions: Sequence[str], columns: Columns) -> list[float | None]:
        from core.sandbox.child import ChildError

        passed = self._passed(completions, columns)
        seconds = self._spec.seconds if self._tried else max(self._spec.start_seconds, 0.1)
        try:
            (result,) = list(self._child.ask({"columns": passed}, seconds))
        except ChildError as problem:
            row = getattr(problem, "row", None)
            raise self._failed("failed", problem, seconds, _named(row, columns)) from None
        self._tried = True
        if isinstance(result, dict):
            raise self._refusal(
                "reward_not_a_list", f"reward() returned a {result['returned']}, not a list of numbers"
            )
        scores: list[float | None] = result
        return scores

    def _passed(self, completions: Sequence[str], columns: Columns) -> dict[str, list[Any]]:
        """What the function asks for by name; with **columns, everything there is."""
        there = {**columns, "completions": list(completions), "prompts": list(columns.get("prompt", []))}
        there |= {name: there[own] for name, own in SAME_AS.items() if name not in there and own in there}
        missing = [name for name in self._form["needs"] if name not in there]
        if missing:
            known = ", ".join(sorted(there.keys() - {"prompts", *SAME_AS}))
            raise self._refusal(
                "reward_form",
                f"reward() has the parameter {missing[0]!r}, and the data has no such column (there are: {known})",
                column=missing[0],
            )
        wanted = {name for name in there if name in self._form["may"]}
        if self._form["any"]:
            wanted |= {"completions", "prompts", *columns}
        return {name: [_sendable(value) for value in there[name]] for name in sorted(wanted)}

    def _checked_form(self, form: dict[str, Any] | None) -> dict[str, Any]:
        if form is None:
            raise self._refusal("reward_form", "has no function named reward")
        if form["positional_only"]:
            name = form["positional_only"][0]
            raise self._refusal(
                "reward_form", f"reward() takes {name!r} by position only; columns come by name"
            )
        if not form["any"] and not form["may"]:
            raise self._refusal("reward_form", "reward() takes no parameters")
        return form

    def _failed(self, what: str, problem: Exception, seconds: float, where: str = "") -> FactoryError:
        from core.sandbox.child import ChildTimeout

        line = getattr(problem, "line", None)
        at = f" (line {line})" if line else ""
        if isinstance(problem, ChildTimeout):
            limit = "seconds" if self._tried else "start_seconds"
            told = f"took longer than {seconds:g} s{where}; make it faster or raise {limit}"
            return self._refusal("reward_hangs", told, form=False)
        return self._refusal("reward_failed", f"{what}{where}: {problem}{at}", form=False)

    def _refusal(self, code: str, what: str, *, form: bool = True, **params: Any) -> FactoryError:
        shown = (
            f"; the right form is `{RIGHT_FORM}`, or with the columns by name: reward(completions, answer)"
        )
        return refuse(
            code,
            f"the reward file {self._spec.title}.py {what}{shown if form else ''}.",
            field="script",
            value=self._spec.script,
            reward=self._spec.title,
            **params,
        )


def _named(row: int | None, columns: Columns) -> str:
    if row is None:
        return ""
    prompt = completion_text(values(columns, "prompt", row + 1)[row] or "")
    return f" on row {row + 1} of the batch (prompt {prompt[:80]!r})"


def _sendable(value: Any) -> Any:
    """A cell as JSON can carry it: plain values and lists stay, what is left becomes text."""
    if isinstance(value, Mapping):
        return {str(key): _sendable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sendable(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
