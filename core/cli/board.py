"""The word about the board: board. The only place of the command line that knows the board exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from core.cli.listening import Host, Port, Token, again
from core.cli.show import ForceHome, home_of, say
from data.userpath import user_path


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(board)


def board(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 7860,
    token: Token = True,
    allow_dir: Annotated[
        list[Path] | None,
        typer.Option(help="A folder outside the home whose files jobs from the board may use; repeatable."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which the board is called, as behind a proxy; repeatable."),
    ] = None,
    force_home: ForceHome = False,
    open: Annotated[bool, typer.Option("--open/--no-open", help="Open the board in a browser.")] = False,
) -> None:
    """Open the board: data, jobs, runs and models in a browser.

    Runs go on when the board ends. Ctrl-C ends it.

    Example: factory board --port 7861
    """
    from core.runs.home import open_home
    from data.errors import refuse
    from webui.settings import Settings, is_loopback, listen, token_of

    home = home_of(context)
    if not token and not is_loopback(host):
        text = (
            f"--no-token is only for this machine's own addresses, and {host} lets others in; leave it out."
        )
        raise refuse("token_required", text, value=host)
    folders = [_folder(one) for one in allow_dir or []]
    open_home(home, force=force_home)
    secret = token_of(home) if token else None
    socket = listen(host, port, f"start the board on another: {again(context)}")
    bound = socket.getsockname()[1]
    settings = Settings(
        home=home,
        host=host,
        port=bound,
        token=secret,
        allow=tuple(folders),
        names=tuple(name or ()),
        force_home=force_home,
    )
    from webui.server import serve

    def started() -> None:
        address = settings.address()
        say(f"The board is at {address}")
        if open and _has_screen():
            import webbrowser

            webbrowser.open(address)

    serve(settings, socket, started)


def _has_screen() -> bool:
    """Whether a browser could show itself; without a screen one that lives in the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(one) for one in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _folder(path: Path) -> Path:
    from data.errors import refuse

    found = user_path(path).resolve()
    if not found.is_dir():
        raise refuse(
            "allow_dir_missing", f"--allow-dir {path} is no folder; name one that is there.", value=str(path)
        )
    return found
