"""Call the function `reward` of a Python file that the operator put into the rewards folder."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PLAIN = (str, int, float, bool, type(None))


class Task:
    """Settings: {path}. Raises whatever the file raises while it is loaded."""

    def __init__(self, settings: dict[str, Any]) -> None:
        path = Path(settings["path"])
        sys.path.append(str(path.parent))  # last, so that a file beside it can be imported but hides nothing
        name = f"factory_reward_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        self._function = getattr(module, "reward", None)

    def about(self) -> dict[str, Any] | None:
        """{needs, may, any}: names the function must get, may get, and whether it takes any; None without one."""
        if not inspect.isroutine(self._function):
            return None
        parameters = list(inspect.signature(self._function).parameters.values())
        named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        return {
            "needs": [one.name for one in named if one.default is one.empty],
            "may": [one.name for one in named],
            "any": any(one.kind is one.VAR_KEYWORD for one in parameters),
            "positional_only": [one.name for one in parameters if one.kind is one.POSITIONAL_ONLY],
        }

    def answer(self, request: dict[str, Any]) -> Iterator[Any]:
        """What the function returns for {columns}: a list as it is, or {"returned": type} for anything else."""
        columns = request["columns"]
        try:
            yield _plain(self._call(columns))
        except Exception as problem:
            problem.factory_row = self._first_bad(columns)  # type: ignore[attr-defined]
            raise

    def _call(self, columns: dict[str, list[Any]]) -> Any:
        assert self._function is not None
        result = self._function(**columns)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    def _first_bad(self, columns: dict[str, list[Any]]) -> int | None:
        """The first row on which the function raises when it is called with that row alone."""
        for row in range(len(columns.get("completions", next(iter(columns.values()), [])))):
            try:
                self._call({name: [values[row]] for name, values in columns.items()})
            except Exception:
                return row
        return None


def _plain(result: Any) -> Any:
    if hasattr(result, "tolist"):  # a numpy array or a torch tensor
        result = result.tolist()
    if not isinstance(result, (list, tuple)):
        return {"returned": type(result).__name__}
    return [_plain_value(value) for value in result]


def _plain_value(value: Any) -> Any:
    if hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    return value if isinstance(value, _PLAIN) else f"a {type(value).__name__}"
