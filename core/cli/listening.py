"""The options of words that listen on the network."""

from __future__ import annotations

from typing import Annotated

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
