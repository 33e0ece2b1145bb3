"""The word for the other machines of a run on several: node."""

from __future__ import annotations

from typing import Annotated

import typer

from core.cli.show import home_of, say


def register(app: typer.Typer) -> None:
    """Add this family's command."""
    app.command()(node)


def node(
    context: typer.Context,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A run, by its id or part of it.", show_default=False)
    ],
    rank: Annotated[int, typer.Option("--rank", help="Which node this machine is, from 1 on.")],
) -> None:
    """Train as one more node of a run that was started on another machine.

    The run's home folder must be seen here under the same path, and node 0 must wait for this node (launcher
    torchrun). Ends with the run; Ctrl-C asks the run to save and stop.

    Example: factory node k3f9 --rank 1
    """
    from core.nodes.node import join, seen
    from core.runs.folder import find_run

    run = seen(find_run(home_of(context), id))
    raise typer.Exit(join(run, rank, lambda text: say(text)))
