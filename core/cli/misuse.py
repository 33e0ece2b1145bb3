"""A wrong word on the command line in one sentence of ours: the word, the value, what is allowed, what to do.

What typer says of it ("Input should be less than or equal to 65535") names neither the value nor the way out.
"""

from __future__ import annotations

import difflib
from typing import Any

from data.errors import FactoryError, refuse


def is_misuse(error: Exception) -> bool:
    """Whether typer refuses the words themselves. Its exceptions have no public name of their own."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def refusal_of(error: Any) -> FactoryError:
    """The refusal of a typer exception about wrong words."""
    name, param = type(error).__name__, getattr(error, "param", None)
    where = getattr(error.ctx, "command_path", None) or "factory"
    if name == "NoSuchOption":
        return _no_option(error.option_name, error.ctx, where)
    if name == "BadOptionUsage":
        text = f"{error.option_name} has no value behind it; write {error.option_name} VALUE."
        return refuse("option_needs_value", text, field=error.option_name)
    if name == "MissingParameter" and param is not None:
        text = f"{where} needs {_name(param)}{_lower(param.help)}; see {where} -h."
        return refuse("argument_missing", text, argument=_name(param))
    if name == "BadParameter" and param is not None:
        return _bad_value(error, param, where)
    message = error.format_message().rstrip(".")
    if message.startswith("No such command "):
        given = message.split("'")[1]
        near = difflib.get_close_matches(given, list(error.ctx.command.commands), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        text = f"{where} has no command {given!r}; {hint}{where} -h lists all."
        return refuse("command_unknown", text, value=given)
    if message.startswith("Got unexpected extra argument"):
        given = message.partition("(s) (")[2].removesuffix(")") or message.partition("(")[2].removesuffix(")")
        return refuse("argument_unknown", f"{where} does not take {given!r}; see {where} -h.", value=given)
    return refuse("wrong_words", f"{message}; see {where} -h.")


def _no_option(option: str, context: Any, where: str) -> FactoryError:
    known = [one for param in context.command.params for one in (*param.opts, *param.secondary_opts)]
    near = difflib.get_close_matches(option, [one for one in known if one.startswith("-")], 1, 0.7)
    hint = f"did you mean {near[0]}? " if near else ""
    if not hint and "--set" in known:
        hint = _set_instead(option)
    return refuse("option_unknown", f"{where} has no option {option}; {hint}see {where} -h.", value=option)


def _set_instead(option: str) -> str:
    """How the setting of an answer is written that somebody took for an option; empty for other words."""
    from core.chat.settings import Settings

    name = option.lstrip("-").replace("-", "_")
    return f"settings of an answer are written -s {name}=VALUE, " if name in Settings.model_fields else ""


def _bad_value(error: Any, param: Any, where: str) -> FactoryError:
    details = error.__cause__.errors() if hasattr(error.__cause__, "errors") else [{}]
    value = details[0].get("input")
    name, kind = _name(param), details[0].get("type", "")
    can_be = _range(param, kind)
    if kind == "value_error":
        choices = [one for at, one in enumerate(details[0]["msg"].split("'")) if at % 2][1:]
        can_be = " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)
    if not can_be or value is None:
        return refuse("option_invalid", f"{name}: {error.message.rstrip('.')}; see {where} -h.", field=name)
    way = "write such a one"
    if not param.required:
        way += ", or leave it out" + (
            f" for the usual {param.default}" if param.default not in (None, (), []) else ""
        )
    text = f"{name} takes {can_be}, not {str(value)[:80]!r}; {way}."
    return refuse("option_invalid", text, field=name, value=str(value)[:200])


def _range(param: Any, kind: str) -> str:
    """What a number may be; empty for what is no number."""
    low, high = param.min, param.max
    if low is None and high is None and not kind.startswith(("int_", "float_")):
        return ""
    what = "a number" if kind.startswith("float_") else "a whole number"
    if low is not None and high is not None:
        return f"{what} from {low:,} to {high:,}"
    return what + (
        f" of {low:,} or more" if low is not None else f" up to {high:,}" if high is not None else ""
    )


def _name(param: Any) -> str:
    """As it is written: --port, or RUN|MODEL|FOLDER."""
    longest = max(param.opts, key=len)
    return str(longest if longest.startswith("-") else param.metavar or longest.upper())


def _lower(help_text: str | None) -> str:
    text = (help_text or "").rstrip(".")
    return f", {text[:1].lower()}{text[1:]}" if text else ""
