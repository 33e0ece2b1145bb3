"""The options of words that listen on the network."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Annotated, Any

import typer

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")]
Token = Annotated[
    bool,
    typer.Option(
        "--token/--no-token",
        help="Ask for the home's token (or $FACTORY_TOKEN); --no-token only on this machine's own addresses.",
    ),
]


def again(context: typer.Context) -> str:
    """The command as it was typed, quoted for a shell, without its port: behind it another one can stand."""
    frames, frame = [], context
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.parent  # type: ignore[assignment]
    words = [context.find_root().info_name or "factory"]
    for one in frames:
        words += [one.info_name or ""] if one is not frames[0] else []
        words += [quote(word) for param in one.command.params for word in _typed(one, param)]
    return " ".join(words)


def _typed(context: typer.Context, param: Any) -> Iterator[str]:
    """The words of a parameter that stood on the command line."""
    source = context.get_parameter_source(param.name)
    if source is None or source.name != "COMMANDLINE" or param.name == "port":
        return
    value = context.params[param.name]
    if param.param_type_name == "argument":
        yield str(value)
    elif isinstance(value, bool):
        yield (param.opts if value else param.secondary_opts)[0]
    else:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield from (param.opts[0], str(one))
